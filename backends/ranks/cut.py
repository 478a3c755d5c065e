"""Cut a call of sharded attention into the calls of its ranks, and put their results together.

The letters of a declared shape say which axes are cut: queries, keys and heads. Where several ranks have the
same elements of a result, as with the gradient of a sink, the result is the sum of theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, SpecError
from attnspec.backends.errors import NotApplicable
from attnspec.operations import Shape
from attnspec.sizes import is_array, output_shapes

#: The argument with the boundaries of the axis of a letter.
BOUNDARIES = {"L": "query_shards", "S": "key_shards", "Hq": "head_shards"}

Place = tuple[slice, ...]
#: The first and the end of each part of an axis.
Spans = tuple[tuple[int, int], ...]


def is_sharded(operation: str) -> bool:
    """Whether the calls of an operation have shards."""
    return BOUNDARIES["L"] in OPERATIONS[operation].arguments


@dataclass(frozen=True)
class Cut:
    """How one call is cut."""

    operation: str
    arguments: Mapping[str, Any]
    spans: Mapping[str, Spans]  # of each letter

    @classmethod
    def of(cls, operation: str, arguments: Mapping[str, Any]) -> "Cut":
        """Read the boundaries of a call.

        Raises
        ------
        NotApplicable
            If they are those of no ranks. Such a call is to be rejected, and ranks cannot make it.
        """
        query, key = arguments["query"].shape, arguments["key"].shape
        heads, key_heads = (shape[-3] if len(shape) > 2 else 1 for shape in (query, key))
        sizes = {"L": query[-2], "S": key[-2], "Hq": heads}
        spans = {x: _spans(name, arguments.get(name), sizes[x]) for x, name in BOUNDARIES.items()}
        group = heads // max(key_heads, 1)
        if group == 0 or any(a % group + b % group and a // group < (b - 1) // group for a, b in spans["Hq"]):
            raise NotApplicable("head_shards: its parts are neither whole groups of heads nor in one group")
        if len(spans["L"]) != len(spans["S"]):
            raise NotApplicable("key_shards: it has other ranks than query_shards")
        spans["Hkv"] = tuple((a // group, -(-b // group) if a < b else a // group) for a, b in spans["Hq"])
        return cls(operation, arguments, spans)

    @property
    def ranks(self) -> int:
        """The number of ranks: for each part of the heads, those of the rows."""
        return len(self.spans["L"]) * len(self.spans["Hq"])

    def arguments_of(self, rank: int) -> dict[str, Any]:
        """Return what a rank has of each argument."""
        form = OPERATIONS[self.operation]
        declared = {**form.arguments, **{argument.name: argument for argument in form.forward}}
        own = dict(self.arguments)
        for name, x in self.arguments.items():
            if is_array(x) and name not in BOUNDARIES.values():
                argument = declared[name]
                own[name] = x[self._place(argument.shape, x.shape, rank, broadcasts=argument.broadcasts)]
        return own

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each result of the whole call; none if its arrays do not fit."""
        try:
            return output_shapes(self.operation, self.arguments)
        except SpecError:
            return {}

    def place_of(self, result: str, rank: int) -> Place:
        """Return where the result of a rank is in the whole one."""
        form = OPERATIONS[self.operation]
        output = next(output for output in form.results if output.name == result)
        broadcasts = bool(output.of) and form.arguments[output.of].broadcasts
        return self._place(output.shape, self.shapes[result], rank, broadcasts=broadcasts)

    def shape_of(self, result: str, rank: int) -> tuple[int, ...]:
        """Return the shape of the result of a rank."""
        axes = zip(self.place_of(result, rank), self.shapes[result], strict=True)
        return tuple(len(range(*part.indices(size))) for part, size in axes)

    def join(self, result: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Put the results of all ranks together."""
        same: dict[str, tuple[Place, list[NDArray[Any]]]] = {}
        for rank, part in enumerate(parts):
            place = self.place_of(result, rank)
            same.setdefault(repr(place), (place, []))[1].append(part)
        whole = np.zeros(self.shapes[result], parts[0].dtype)
        for place, several in same.values():
            whole[place] = several[0] if len(several) == 1 else _sum(several)
        return whole

    def _place(self, letters: Shape, shape: tuple[int, ...], rank: int, *, broadcasts: bool) -> Place:
        """Return the part of each axis that a rank has. Of pairs it has its queries and all keys."""
        part, shard = divmod(rank, len(self.spans["L"]))
        own = {"L": shard, "Hq": part, "Hkv": part} | ({} if "L" in letters else {"S": shard})
        places = [slice(None)] * len(shape)
        for axis in range(-1, -1 - min(len(shape), len(letters)), -1):
            letter, size = letters[axis], shape[axis]
            if letter not in own or (broadcasts and size == 1):
                continue
            spans = self.spans[letter]
            if size != spans[-1][1]:
                raise NotApplicable(f"an axis of {size} is not one of {spans[-1][1]}, which is cut")
            places[axis] = slice(*spans[own[letter]])
        return tuple(places)


def _spans(name: str, boundaries: Any, size: int) -> Spans:
    """Return the parts between boundaries; without boundaries, the whole axis."""
    if boundaries is None:
        return ((0, size),)
    numbers = np.asarray(boundaries)
    known = numbers.ndim == 1 and len(numbers) > 1 and numbers.dtype.kind in "iu"
    listed = numbers.tolist() if known else []
    if not known or listed[0] != 0 or listed[-1] != size or sorted(listed) != listed:
        raise NotApplicable(f"{name}: it is not a list of boundaries from 0 to {size}")
    return tuple(pairwise(listed))


def _sum(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Add arrays up, in float64 at least, and round the sum once."""
    dtype = parts[0].dtype
    wide = np.float64 if dtype.itemsize < 8 else dtype
    with np.errstate(all="ignore"):
        return np.asarray(np.sum([part.astype(wide) for part in parts], axis=0)).astype(dtype)

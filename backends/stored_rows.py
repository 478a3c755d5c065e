"""The inverse of packing and paging: arrays of attention as rows of sequences or as pages hold them."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.backends.backend import Backend
from attnspec.backends.errors import Unsupported
from attnspec.operations import Shape
from attnspec.operations.letters import BATCH

#: The positions of a page, which reports name, and the numbers and codes in places that no sequence has.
PAGE, _UNREAD, _UNREAD_CODE = 16, 1000.0, 127
#: The lengths of a sequence, by the letter of its axis.
LENGTHS = {"L": "query_lengths", "S": "key_lengths"}
#: The depths of what is stored for each key.
_DEPTHS = ("D", "Dv", "Dc", "Dr")


@dataclass(frozen=True)
class Rows:
    """The sequences of one call of attention, as rows or pages hold them."""

    backend: Backend
    packed: bool
    paged: bool
    batch: tuple[int, ...]
    sizes: dict[str, int]  # the lengths of the axes L and S
    used: dict[str, NDArray[np.int64]]  # of each sequence, the part of them that it has

    @classmethod
    def of(cls, backend: Backend, layers: tuple[str, ...], given: dict[str, Any]) -> "Rows":
        """Read the sizes of a call."""
        if len(given["query"].shape) < 3:
            raise Unsupported("a call without heads has no place in the layout")
        batch = tuple(given["query"].shape[:-3])
        sizes = {"L": given["query"].shape[-2], "S": given["key"].shape[-2]}
        used = {}
        for letter, name in LENGTHS.items():
            length = given.get(name, sizes[letter])
            length = length if isinstance(length, int) else backend.to_numpy(length)
            used[letter] = np.broadcast_to(np.asarray(length, np.int64), batch).reshape(-1)
        return cls(backend, "packed" in layers, "paged" in layers, batch, sizes, used)

    @property
    def count(self) -> int:
        """The number of sequences."""
        return prod(self.batch)

    @property
    def places(self) -> int:
        """The number of places of the pages of a sequence."""
        return -(-self.sizes["S"] // PAGE) * PAGE

    @property
    def table(self) -> NDArray[np.int64]:
        """The pages of each sequence, ``(G, T)``."""
        pages = self.places // PAGE
        order = np.random.default_rng(0).permutation(self.count * pages)
        return order.reshape(self.count, pages)

    def own(self, call: dict[str, Any], held: tuple[str, ...]) -> dict[str, Any]:
        """Return the arguments of rows and pages, in the place of those that hold keys."""
        put, own = self.backend.to_library, {}
        for letter, side in (("L", "query"), ("S", "key")):
            if self.packed and (side == "query" or not self.paged):
                own[f"{side}_starts"] = put(np.append(0, np.cumsum(self.used[letter])))
        if self.paged:
            own |= {f"{name.removesuffix('_codes')}_pages": call.pop(name) for name in held}
            own |= {"block_table": put(self.table), "key_lengths": put(self.used["S"])}
        return own

    def offset(self, given: dict[str, Any], *, own: bool) -> dict[str, Any]:
        """Return an offset for each sequence, where positions of queries matter."""
        if "query_positions" in given or not {"is_causal", "window"} & {*given}:
            return {}
        offset = given.get("query_offset", 0)
        offset = offset if isinstance(offset, int) else self.backend.to_numpy(offset)
        offset = np.broadcast_to(np.asarray(offset, np.int64), self.batch).reshape(-1)
        if own:
            return {"query_offset": self.backend.to_library(offset.copy())}
        at_end = self.paged or self.backend.dialect.get("PACK-5") == "bottom-right"
        if not np.array_equal(offset, self.used["S"] - self.used["L"] if at_end else 0 * offset):
            raise Unsupported("its function takes no query_offset, and aligns this call otherwise")
        return {}

    def store(self, array: Any, letters: Shape) -> Any:
        """Store an array of attention with axes of these letters."""
        if not (self.packed or self.paged) or BATCH not in letters or isinstance(array, int):
            return array
        xp, inner = self.backend.xp, letters[1:]
        if {"L", "S"} <= {*inner}:  # a mask or a bias, which may lack axes
            if self.packed and not self.paged and self.count > 1:
                raise Unsupported("a mask of several packed sequences would be too large")
            heads = array.shape[-3] if len(array.shape) > 2 else 1
            array = xp.broadcast_to(array, (*self.batch, heads, self.sizes["L"], self.sizes["S"]))
        array = xp.reshape(array, (self.count, *array.shape[len(self.batch) :]))
        if self.paged and "S" in inner:
            array = self._with_room(array, 1 + inner.index("S"))
            array = self._in_pages(array) if inner[-1] in _DEPTHS else array
        for axis, letter in self._rows(inner):
            if len(array.shape) > len(inner):  # the axis of sequences is still there
                sides = (*range(1, axis + 1), 0, *range(axis + 1, len(array.shape)))
                array = xp.permute_dims(array, sides)
                array = xp.reshape(array, (*array.shape[:axis], -1, *array.shape[axis + 2 :]))
            array = xp.take(array, self.backend.to_library(self._places(letter)), axis=axis)
        return array

    def restore(self, array: Any, letters: Shape, empty: float, sinks: Any = None) -> Any:
        """Return a result in the shape that attention gives it.

        Rows past a length are empty, and their lse is the sink of their head.
        """
        if not (self.packed or self.paged) or BATCH not in letters:
            return array
        xp, inner = self.backend.xp, letters[1:]
        for axis, letter in self._rows(inner):
            places, size = self._places(letter), self.count * self.sizes[letter]
            back = np.full(size, len(places))
            back[places] = np.arange(len(places))
            shape = (*array.shape[:axis], 1, *array.shape[axis + 1 :])
            own = None if sinks is None else xp.astype(sinks[:, None], array.dtype)
            filler = self._full(array, shape, empty) if own is None else own
            array = xp.take(xp.concat([array, filler], axis=axis), self.backend.to_library(back), axis=axis)
        if rows := self._rows(inner):
            axis = rows[0][0]
            split = (*array.shape[:axis], self.count, -1, *array.shape[axis + 1 :])
            sides = (axis, *(side for side in range(len(split)) if side != axis))
            array = xp.permute_dims(xp.reshape(array, split), sides)
        return xp.reshape(array, (*self.batch, *array.shape[1:]))

    def _rows(self, inner: Shape) -> list[tuple[int, str]]:
        """Return the axes whose rows a form packs, with their letters."""
        packed = {"L", "S"} if not self.paged else {"L"}
        return [(axis, letter) for axis, letter in enumerate(inner) if self.packed and letter in packed]

    def _places(self, letter: str) -> NDArray[np.int64]:
        """Return the rows, of all rows of all sequences, that are within the length of theirs."""
        size = self.sizes[letter]
        return np.concatenate([g * size + np.arange(n) for g, n in enumerate(self.used[letter])])

    def _with_room(self, array: Any, axis: int) -> Any:
        """Lengthen the axis of keys to whole pages."""
        more = -self.sizes["S"] % PAGE
        shape = (*array.shape[:axis], more, *array.shape[axis + 1 :])
        return self.backend.xp.concat([array, self._full(array, shape, _UNREAD)], axis=axis)

    def _full(self, like: Any, shape: tuple[int, ...], number: float) -> Any:
        """Make an array of one number, with the dtype of another array."""
        dtype = self.backend.to_numpy(like[(slice(0, 0),) * len(shape)]).dtype
        number = _UNREAD_CODE if number == _UNREAD and dtype.kind in "iu" else number
        return self.backend.to_library(np.full(shape, number).astype(dtype))

    def _in_pages(self, array: Any) -> Any:
        """Cut keys or values ``(G, Hkv, T * K, D)``, or an array without heads, into pages in any order."""
        xp, (count, *heads, _, depth) = self.backend.xp, array.shape
        place = 1 + len(heads)  # of the axis of pages
        array = xp.moveaxis(xp.reshape(array, (count, *heads, -1, PAGE, depth)), place, 1)
        pages = xp.reshape(array, (-1, *heads, PAGE, depth))
        return xp.take(pages, self.backend.to_library(np.argsort(self.table.ravel())), axis=0)

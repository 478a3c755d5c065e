"""Problems: the arrays of generated cases.

The numbers are multiples of 1/64 of moderate size, so that a printed problem is short
and most dtypes hold each number exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnspec.backends.constraints import Constraints

Array = NDArray[np.float64]


class Shape(NamedTuple):
    """The sizes of a problem. `outer` are batch axes and query heads. `groups` heads share a key head."""

    outer: tuple[int, ...]
    queries: int
    keys: int
    depth: int
    value_depth: int
    groups: int = 1

    @property
    def key_outer(self) -> tuple[int, ...]:
        """Batch axes and key heads."""
        return (*self.outer[:-1], self.outer[-1] // self.groups) if self.outer else ()


def fitted(shape: Shape, constraints: Constraints) -> Shape:
    """Change a shape to fit the constraints of an implementation.

    If there are fewer or more queries than keys, this stays so.
    """
    queries, keys = (
        size + -size % multiple
        for size, multiple in zip((shape.queries, shape.keys), constraints.multiple, strict=True)
    )
    if shape.queries < shape.keys and queries >= keys:
        keys = queries + constraints.multiple[1] - queries % constraints.multiple[1]
    if shape.queries > shape.keys and queries <= keys:
        queries = keys + constraints.multiple[0] - keys % constraints.multiple[0]
    if constraints.lengths == "equal":
        queries = keys = max(queries, keys) + -max(queries, keys) % lcm(*constraints.multiple)
    # With three axes the first is the axis of heads, so a batch axis is dropped explicitly.
    outer = shape.outer[-2:] if constraints.axes == 4 else shape.outer
    value_depth = shape.depth if constraints.value_depth == "key" else shape.value_depth
    groups = 1 if constraints.heads == "equal" else shape.groups
    fit = Shape(outer, queries, keys, shape.depth, value_depth, groups)
    if not constraints.depths:
        return fit
    enough = [depth for depth in constraints.depths if depth >= shape.depth]
    depth = min(enough, default=max(constraints.depths))
    return fit._replace(depth=depth, value_depth=depth)


#: The sizes are distinct if possible, so that confused axes are detected. There are few of them, because JAX
#: compiles for every shape. All cases use these lists.
SHAPES = (
    Shape((), 1, 1, 1, 1),
    Shape((), 3, 5, 4, 4),
    Shape((), 5, 3, 2, 2),
    Shape((2,), 4, 4, 3, 3),
    Shape((2, 3), 5, 7, 4, 4),
    Shape((1, 2), 6, 17, 8, 8),
    Shape((2, 2), 4, 4, 3, 3),  # as many heads as batch entries, and queries as keys: only the values differ
    Shape((2,), 3, 4, 2, 5),
    Shape((1, 2, 1, 2), 1, 5, 4, 4),  # more batch axes than one, and a single query
)
#: Two, three and five query heads to a key head; the last is multi-query attention.
GROUPED = (
    Shape((2, 4), 3, 5, 4, 4, groups=2),
    Shape((6,), 4, 4, 3, 3, groups=3),
    Shape((1, 5), 5, 3, 2, 2, groups=5),
)
#: Fewer queries than keys, as many, and more. There are batch entries, so that per-entry numbers matter.
MASKED = (
    Shape((2, 3), 5, 7, 4, 4),
    Shape((2, 2), 4, 4, 3, 3),
    Shape((3, 2), 6, 4, 2, 2),
    Shape((), 5, 3, 2, 2),
)


@dataclass(frozen=True)
class Problem:
    """Queries, keys and values in one dtype, and a generator for options."""

    query: NDArray[Any]  # (*B, Hq, L, D) or (L, D)
    key: NDArray[Any]  # (*B, Hkv, S, D) or (S, D)
    value: NDArray[Any]  # (*B, Hkv, S, Dv) or (S, Dv)
    random: np.random.Generator

    @property
    def arguments(self) -> dict[str, Any]:
        """The three arrays, by canonical name."""
        return {"query": self.query, "key": self.key, "value": self.value}

    @property
    def shape(self) -> tuple[int, ...]:
        """The scores' shape, ``(*B, Hq, L, S)``."""
        return (*self.query.shape[:-1], self.key.shape[-2])

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch axes."""
        return self.query.shape[:-3]

    def integers(self, low: int, high: int) -> int | NDArray[np.int64]:
        """Draw an integer from `low` to `high`, or one for each batch entry."""
        if self.batch and self.random.random() < 0.7:
            return self.random.integers(low, high + 1, self.batch)
        return int(self.random.integers(low, high + 1))

    def choice(self, *things: Any) -> Any:
        """Draw one of some things."""
        return things[int(self.random.integers(len(things)))]

    def array(self, *shape: int, amplitude: float = 1.0) -> NDArray[Any]:
        """Draw more numbers like those of the problem."""
        return grid(self.random, shape, amplitude).astype(self.query.dtype)

    def mask(self) -> NDArray[np.bool_]:
        """Draw a mask of the scores' shape with at least one allowed key, the first, in each row."""
        mask = self.random.random(self.shape) < 0.6
        mask[..., :1] = True
        return mask

    def broadcastable(self, full: NDArray[Any]) -> NDArray[Any]:
        """Take a part that broadcasts to the whole: some axes of size 1, some leading axes dropped."""
        keep = self.random.random(full.ndim) < 0.5
        part = full[tuple(slice(None) if kept else slice(0, 1) for kept in keep)]
        drop = int(self.random.integers(0, full.ndim))
        return np.array(part[(0,) * drop])

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in self.arguments.items())
        return f"Problem({self.query.dtype}: {shapes})"


#: The axes along which one number of an array of pairs is for several.
SHARED: Mapping[str, tuple[int, ...]] = {
    "entries": (-4,),
    "heads": (-3,),
    "entries and heads": (-4, -3),
    "queries": (-2,),
    "keys": (-1,),
}


#: Arrays with planes for all heads of an entry, or for all entries of a head: the option, and along what.
PLANES: Mapping[str, tuple[str, str]] = {
    f"{option} of each {own}": (option, along)
    for option in ("mask", "bias")
    for own, along in (("entry", "heads"), ("head", "entries"))
}


def share_along(full: NDArray[Any], axes: tuple[int, ...]) -> NDArray[Any]:
    """Take one number for several along some axes of an array of pairs, which keep a size of 1."""
    places = (slice(0, 1) if axis - full.ndim in axes else slice(None) for axis in range(full.ndim))
    return np.array(full[tuple(places)])


def grid(random: np.random.Generator, shape: tuple[int, ...], amplitude: float) -> NDArray[np.float64]:
    """Draw signed multiples of 1/64 of about the size `amplitude`."""
    return np.rint(random.normal(size=shape) * amplitude * 64) / 64


def problem_of(shape: Shape, dtype: str, seed: int, amplitude: float = 1.0) -> Problem:
    """Make the problem of a shape and a seed: the same numbers in every dtype."""
    query, key, value, state = _drawn(shape, seed, amplitude)
    random = np.random.Generator(np.random.PCG64(_ANY))
    random.bit_generator.state = state
    return Problem(query.astype(dtype), key.astype(dtype), value.astype(dtype), random)


#: The seed of a generator whose state is set.
_ANY = np.random.SeedSequence(0)


@lru_cache(maxsize=1)
def _drawn(shape: Shape, seed: int, amplitude: float) -> tuple[Array, Array, Array, Any]:
    """Draw the three arrays, and return the state of the generator after it. The next dtype has the same."""
    random = np.random.default_rng(seed)
    return (
        grid(random, (*shape.outer, shape.queries, shape.depth), amplitude),
        grid(random, (*shape.key_outer, shape.keys, shape.depth), amplitude),
        grid(random, (*shape.key_outer, shape.keys, shape.value_depth), 1.0),
        random.bit_generator.state,
    )

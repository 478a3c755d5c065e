"""Hypothesis strategies: problems to be put to a backend.

The numbers are whole multiples of 1/64 of moderate size, so that each of them is
the same number in every dtype and a printed problem is short.
"""

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, Phase, settings
from numpy.typing import NDArray

from attnspec.backends import Backend

#: What every property runs with: the same examples each time, no time limit on one of them.
SETTINGS = settings(
    max_examples=15,
    deadline=None,  # libraries compile on the first call of a shape
    derandomize=True,
    database=None,
    # No shrinking: problems come from a short list of shapes and a seed, and the first are the smallest.
    phases=(Phase.explicit, Phase.generate),
    print_blob=False,
    report_multiple_bugs=False,
    # A backend and the recorder are the same for all examples of a test, as they should be.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

#: (outer axes, L, S, D, Dv): sizes distinct where they can be, so that any mix-up of axes shows.
#: Few of them: JAX compiles anew for every shape.
SHAPES: tuple[tuple[tuple[int, ...], int, int, int, int], ...] = (
    ((), 1, 1, 1, 1),
    ((), 3, 5, 4, 4),
    ((), 5, 3, 2, 2),
    ((2,), 4, 4, 3, 3),
    ((2, 3), 5, 7, 4, 4),
    ((1, 2), 6, 17, 8, 8),
    ((2,), 3, 4, 2, 5),
    ((2, 2), 4, 4, 3, 3),  # as many heads as batch entries, queries as keys: only the numbers tell them apart
    ((1, 2, 1, 2), 1, 5, 4, 4),  # more batch axes than one, and a single query
)


@dataclass(frozen=True)
class Problem:
    """Queries, keys and values in one dtype, and a generator for what else is wanted.

    Attributes
    ----------
    query : (*B, H, L, D) or (L, D)
    key : (*B, H, S, D) or (S, D)
    value : (*B, H, S, Dv) or (S, Dv)
    random : numpy.random.Generator
    """

    query: NDArray[Any]
    key: NDArray[Any]
    value: NDArray[Any]
    random: np.random.Generator

    @property
    def arguments(self) -> dict[str, Any]:
        """The three arrays, by canonical name."""
        return {"query": self.query, "key": self.key, "value": self.value}

    @property
    def shape(self) -> tuple[int, ...]:
        """The scores' shape, ``(*B, H, L, S)``."""
        return (*self.query.shape[:-1], self.key.shape[-2])

    def array(self, *shape: int, amplitude: float = 1.0) -> NDArray[Any]:
        """More numbers like those of the problem."""
        return grid(self.random, shape, amplitude).astype(self.query.dtype)

    def mask(self) -> NDArray[np.bool_]:
        """Draw a mask of the scores' shape with at least one allowed key, the first, in each row."""
        mask = self.random.random(self.shape) < 0.6
        mask[..., :1] = True
        return mask

    def broadcastable(self, full: NDArray[Any]) -> NDArray[Any]:
        """Take a part that broadcasts to the whole: some axes made 1, some leading ones dropped."""
        keep = self.random.random(full.ndim) < 0.5
        part = full[tuple(slice(None) if kept else slice(0, 1) for kept in keep)]
        drop = int(self.random.integers(0, full.ndim))
        return np.array(part[(0,) * drop])

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in self.arguments.items())
        return f"Problem({self.query.dtype}: {shapes})"


def grid(random: np.random.Generator, shape: tuple[int, ...], amplitude: float) -> NDArray[np.float64]:
    """Signed numbers, about `amplitude` large, on the grid of 1/64."""
    return np.round(random.normal(size=shape) * amplitude * 64) / 64


@st.composite
def problems(draw: st.DrawFn, backend: Backend, shapes: Any = SHAPES) -> Problem:
    """Problems in every dtype of a backend, from flat to sharply peaked rows.

    Parameters
    ----------
    backend : Backend
    shapes : sequence, optional
        Some of `SHAPES`, or others.
    """
    outer, queries, keys, depth, value_depth = draw(st.sampled_from(shapes))
    dtype = draw(st.sampled_from(backend.dtypes))
    amplitude = draw(st.sampled_from((1.0, 0.125, 4.0)))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    return Problem(
        grid(random, (*outer, queries, depth), amplitude).astype(dtype),
        grid(random, (*outer, keys, depth), amplitude).astype(dtype),
        grid(random, (*outer, keys, value_depth), 1.0).astype(dtype),
        random,
    )

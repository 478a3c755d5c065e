"""The chapter `latent`: the gradients of latent attention."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.latent import SIZES, Sizes, problem
from attnspec.conformance.suite.problem import grid

chapter = Chapter("latent")

_VJP = "latent_attention_vjp"
#: Sums over more keys, queries, heads and batch entries than a tile holds.
_LONG = {
    "keys": (Sizes((), 2, 2, 65, 4, 2, 6, 3), Sizes((), 1, 3, 130, 4, 2, 6, 3)),
    "queries": (Sizes((), 2, 33, 5, 4, 2, 6, 3), Sizes((), 1, 65, 17, 4, 2, 6, 3)),
    "heads": (Sizes((), 17, 2, 5, 4, 2, 6, 3), Sizes((2,), 9, 2, 3, 3, 1, 4, 2)),
    "batch entries": (Sizes((17,), 2, 2, 3, 3, 2, 4, 2), Sizes((3, 5), 1, 2, 3, 3, 2, 4, 2)),
}


def _call(
    random: np.random.Generator, dtype: str, sizes: Sizes, amplitude: float = 1.0, *, lse: bool = False
) -> dict[str, Any]:
    """Draw a call with its cotangents."""
    call = problem(random, dtype, sizes, amplitude)
    rows = call["query"].shape[:-1]
    call["d_output"] = grid(random, (*rows, sizes.values), 1.0).astype(dtype)
    return call | ({"d_lse": grid(random, rows, 1.0).astype(lse_dtype(dtype))} if lse else {})


@chapter.group("LATENT-5", "LATENT-6", "GRAD-2", operation=_VJP, each=(0.25, 1.0, 4.0))
def gradients_of_a_latent(draw: Draw, amplitude: float) -> Iterator[Yielded]:
    """Latent vectors and weights collect from all heads, all positions and all batch entries."""
    for index, (random, dtype) in enumerate(draw.generators(4)):
        yield _call(random, dtype, SIZES[index // 2], amplitude, lse=index // 2 % 2 == 1)


@chapter.group("LATENT-5", "LATENT-6", operation=_VJP)
def gradients_of_one_width(draw: Draw) -> Iterator[Yielded]:
    """All axes have the same size, so no shape shows that a weight or its gradient is transposed."""
    for random, dtype in draw.generators(4):
        yield _call(random, dtype, Sizes((3,), 3, 3, 3, 3, 3, 3, 3))


@chapter.group("LATENT-6", "LATENT-5", operation=_VJP, each=tuple(_LONG))
def gradients_of_many(draw: Draw, many: str) -> Iterator[Yielded]:
    """A sum over more than a tile holds, of numbers of both signs."""
    for random, dtype in draw.generators(1):
        for sizes in _LONG[many]:
            yield _call(random, dtype, sizes)


@chapter.group("LATENT-6", "LATENT-2", "LATENT-5", operation=_VJP)
def gradients_at_the_proportions_of_a_model(draw: Draw) -> Iterator[Yielded]:
    """The latent is four times as deep as keys, as in DeepSeek-V3. The default scale is that of the keys."""
    random = np.random.default_rng(draw.number())
    for dtype in ("float32", "bfloat16"):
        yield _call(random, dtype, Sizes((), 2, 2, 3, 16, 8, 64, 16))


@chapter.group("LATENT-5", "GRAD-6", "GRAD-14", operation=_VJP)
def loss_on_the_lse_alone(draw: Draw) -> Iterator[Yielded]:
    """The value weight has a gradient of 0, and the latent has that of the keys alone."""
    for index, (random, dtype) in enumerate(draw.generators(2)):
        call = _call(random, dtype, SIZES[index // 2 * 3], lse=True)
        yield call | {"d_output": np.zeros_like(call["d_output"])}


@chapter.group("LATENT-5", "GRAD-9", "MASK-9", operation=_VJP, each=("numbers", "NaN"))
def gradients_past_the_length(draw: Draw, rest: str) -> Iterator[Yielded]:
    """The part of a cache that is not filled has gradients of 0, and adds nothing to those of weights."""
    for random, dtype in draw.generators(2):
        call = _call(random, dtype, SIZES[0], lse=True)
        lengths = np.array([4, 0])
        for name in ("latent", "key_rotary"):
            for entry, length in enumerate(lengths):
                call[name][entry, length:] = np.nan if rest == "NaN" else 1000
        rules = ("GRAD-12",) if rest == "NaN" else ("LATENT-5", "GRAD-9", "MASK-9")
        yield Call(call | {"key_lengths": lengths}, rules)


@chapter.group("LATENT-5", "GRAD-10", operation=_VJP)
def gradients_of_a_query_without_keys(draw: Draw) -> Iterator[Yielded]:
    """A query with nothing to attend to has a gradient of 0 and adds nothing to those of the arrays."""
    for index, (random, dtype) in enumerate(draw.generators(2)):
        sizes = SIZES[index // 2 * 3]
        call = _call(random, dtype, sizes, lse=True)
        mask = random.random((*sizes.batch, sizes.heads, sizes.queries, sizes.keys)) < 0.7
        mask[..., 1, :] = False
        yield call | {"mask": mask}


@chapter.group("LATENT-5", "GRAD-2", "SHAPE-7", operation=_VJP, each=("keys", "queries", "batch entries"))
def gradients_of_nothing(draw: Draw, without: str) -> Iterator[Yielded]:
    """Without keys, queries or batch entries, the weights have gradients of 0."""
    sizes = SIZES[0]._replace(**{without: 0} if without != "batch entries" else {"batch": (0,)})
    for random, dtype in draw.generators(1):
        yield _call(random, dtype, sizes)


@chapter.group("LATENT-5", "NUM-8", "GRAD-15", operation=_VJP, each=("transposed", "reversed"))
def gradients_in_another_layout(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Arrays and cotangents are views with other strides."""
    for random, dtype in draw.generators(1):
        call = _call(random, dtype, SIZES[0])
        yield Call(call, layout=dict.fromkeys(call, layout))

"""The chapter `latent`: attention over latent vectors, which keys and values are projected from."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import grid

chapter = Chapter("latent")

Given = dict[str, Any]
Random = np.random.Generator


class Sizes(NamedTuple):
    """The sizes of a problem, pairwise distinct where possible."""

    batch: tuple[int, ...]
    heads: int
    queries: int
    keys: int
    depth: int
    rotary: int
    latent: int
    values: int


#: A latent deeper than keys, as in models, and one that is not so deep; one query; one head; no batch axis.
SIZES = (
    Sizes((2,), 3, 4, 6, 5, 2, 8, 7),
    Sizes((), 2, 1, 7, 3, 4, 5, 6),
    Sizes((2, 1), 1, 5, 3, 4, 2, 3, 2),
    Sizes((1,), 4, 2, 9, 2, 6, 12, 3),
)
#: Sizes that do not fill a tile, that fill it, and that pass it.
_TILES = (16, 17, 64, 65)


def problem(random: Random, dtype: str, sizes: Sizes, amplitude: float = 1.0) -> Given:
    """Draw the arrays of a call."""
    rows, keys = (*sizes.batch, sizes.heads, sizes.queries), (*sizes.batch, sizes.keys)
    # Weights that keep projected keys and values at about the size of the latent.
    small = 1 / np.sqrt(sizes.latent)
    shapes = {
        "query": ((*rows, sizes.depth), amplitude),
        "query_rotary": ((*rows, sizes.rotary), amplitude),
        "latent": ((*keys, sizes.latent), 1.0),
        "key_rotary": ((*keys, sizes.rotary), 1.0),
        "key_weight": ((sizes.heads, sizes.latent, sizes.depth), small),
        "value_weight": ((sizes.heads, sizes.latent, sizes.values), small),
    }
    return {name: grid(random, shape, size).astype(dtype) for name, (shape, size) in shapes.items()}


@chapter.group("LATENT-1", "LATENT-2", "LATENT-4", operation="latent_attention", each=(0.25, 1.0, 4.0))
def attended_latent(draw: Draw, amplitude: float) -> Iterator[Yielded]:
    """Keys and values are projected from the latent, and all heads share the rotary part of the keys."""
    for index, (random, dtype) in enumerate(draw.generators(4)):
        yield problem(random, dtype, SIZES[index // 2], amplitude)


@chapter.group("LATENT-4", "LATENT-1", operation="latent_attention", each=_TILES)
def latent_of_many_keys(draw: Draw, keys: int) -> Iterator[Yielded]:
    """Numbers of keys around the sizes of tiles."""
    for random, dtype in draw.generators(1):
        yield problem(random, dtype, Sizes((), 2, 2, keys, 4, 2, 6, 3))


@chapter.group("LATENT-2", "LATENT-4", "LATENT-1", operation="latent_attention")
def latent_of_a_model(draw: Draw) -> Iterator[Yielded]:
    """The depths of DeepSeek-V3: 128 and 64 of keys, 512 of the latent, 128 of values."""
    random = np.random.default_rng(draw.number())
    for dtype in ("float32", "bfloat16"):
        yield problem(random, dtype, Sizes((), 1, 2, 3, 128, 64, 512, 128))


@chapter.group("LATENT-1", operation="latent_attention", each=("keys", "queries", "batch entries"))
def latent_of_nothing(draw: Draw, without: str) -> Iterator[Yielded]:
    """Without keys the output is 0 and the lse minus infinity, and without queries there is no output."""
    sizes = SIZES[0]._replace(**{without: 0} if without != "batch entries" else {"batch": (0,)})
    for random, dtype in draw.generators(1):
        yield Call(problem(random, dtype, sizes), ("LATENT-1", "MASK-6") if without == "keys" else ())


def _lengths(random: Random, arguments: Given, sizes: Sizes) -> Given:
    lengths = random.integers(0, sizes.keys + 1, sizes.batch)
    for entry, length in zip(np.ndindex(*sizes.batch), lengths.ravel(), strict=True):
        for name in ("latent", "key_rotary"):  # garbage in the part of the cache that is not filled
            arguments[name][entry][length:] = 1000
    return {"key_lengths": lengths}


def _mask(random: Random, _found: Given, sizes: Sizes) -> Given:
    return {"mask": random.random((*sizes.batch, sizes.heads, sizes.queries, sizes.keys)) < 0.6}


def _sinks(random: Random, arguments: Given, sizes: Sizes) -> Given:
    return {"sinks": grid(random, (sizes.heads,), 1.0).astype(arguments["query"].dtype)}


_OPTIONS: dict[str, Callable[[Random, Given, Sizes], Given]] = {
    "scale": lambda random, arguments, sizes: {"scale": 0.1352337788608801},  # noqa: ARG005 - all have one call
    "softcap": lambda random, arguments, sizes: {"softcap": 1.5},  # noqa: ARG005
    "mask": _mask,
    "causal": lambda random, arguments, sizes: {"is_causal": True, "query_offset": 2},  # noqa: ARG005
    "offsets": lambda random, arguments, sizes: {  # noqa: ARG005
        "is_causal": True,
        "query_offset": random.integers(-1, 4, sizes.batch),
    },
    "window": lambda random, arguments, sizes: {"window": (2, 1), "query_offset": 1},  # noqa: ARG005
    "lengths": _lengths,
    "sinks": _sinks,
}
_CITED = {
    "scale": ("LATENT-2", "SCORE-3"),
    "softcap": ("SCORE-5",),
    "mask": ("MASK-1",),
    "causal": ("MASK-3", "MASK-7"),
    "offsets": ("MASK-7",),
    "window": ("MASK-8",),
    "lengths": ("MASK-9", "MASK-12"),
    "sinks": ("SOFT-5",),
}


@chapter.group("LATENT-3", operation="latent_attention", each=tuple(_OPTIONS))
def latent_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option acts on the scores as in the operator."""
    for index, (random, dtype) in enumerate(draw.generators(2)):
        sizes = SIZES[(0, 3)[index // 2]]
        arguments = problem(random, dtype, sizes)
        yield Call(arguments | _OPTIONS[option](random, arguments, sizes), ("LATENT-3", *_CITED[option]))


@chapter.group("LATENT-3", operation="latent_attention")
def latent_with_several_options(draw: Draw) -> Iterator[Yielded]:
    """A step of decoding with a cache, a softcap, a window and sinks."""
    for random, dtype in draw.generators(2):
        sizes = SIZES[0]
        arguments = problem(random, dtype, sizes)
        arguments |= _lengths(random, arguments, sizes) | _sinks(random, arguments, sizes)
        yield arguments | {
            "softcap": 2.0,
            "is_causal": True,
            "window": (3, 0),
            "query_offset": 1,
            "scale": 0.4,
        }


@chapter.group("LATENT-1", "NUM-8", operation="latent_attention", each=("transposed", "reversed"))
def latent_in_another_layout(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Arrays are views with other strides, such as the latent and the rotary part of one cache."""
    for random, dtype in draw.generators(1):
        arguments = problem(random, dtype, SIZES[0])
        yield Call(arguments, ("LATENT-1", "NUM-8"), layout=dict.fromkeys(arguments, layout))

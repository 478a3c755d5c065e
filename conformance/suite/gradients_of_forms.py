"""The chapter `gradients`: each option in the backward pass of packed rows, of blocks and of lists."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.conformance.suite.drawn_stacks import OPTIONS, Sizes, draw_call, options_of
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import grid
from attnspec.conformance.suite.stacks import STORED, TILES
from attnspec.conformance.suite.words import draw_in_turn

chapter = Chapter("gradients")

#: The forms that have gradients, and the rule of these.
_RULES = {
    "packed_attention": "PACK-7",
    "block_sparse_attention": "SPARSE-12",
    "listed_attention": "SPARSE-12",
}
_OPTIONS = tuple(name for name in OPTIONS if name not in ("nothing", "left padding"))


@chapter.group("PACK-7", "SPARSE-12", each=_OPTIONS)
def gradients_in_forms_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option of attention acts in the backward pass of a form, and of packed rows at sizes of tiles."""
    names = [name for name in _RULES if option in options_of(STORED[name].layers)]
    calls = [replace(Sizes(rest=(2, 1)), name=name) for name in (*names, names[0])]
    calls.append(replace(TILES["16"], name=names[0]))
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, option)
        rules = tuple(dict.fromkeys((_RULES[sizes.name], "STACK-2", *OPTIONS[option][0])))
        yield Call(call | _cotangents(random, call), rules, operation=f"{sizes.name}_vjp")


def _cotangents(random: np.random.Generator, call: dict[str, Any]) -> dict[str, Any]:
    """Draw cotangents of output and lse for the arrays of a call."""
    query, depth = call["query"], call["value"].shape[-1]
    wide = query.dtype if query.dtype == np.float64 else np.dtype(np.float32)
    return {
        "d_output": grid(random, (*query.shape[:-1], depth), 1.0).astype(query.dtype),
        "d_lse": grid(random, query.shape[:-1], 1.0).astype(wide),
    }

"""The chapter `gradients`: each option in the backward pass of packed rows, blocks, lists, latent vectors."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.conformance.relations.nan import beyond_the_head, spoil
from attnspec.conformance.suite.alone import draw_alone, draw_option_alone, optional_of
from attnspec.conformance.suite.drawn_stacks import (
    OPTIONS,
    TOGETHER,
    Sizes,
    draw_call,
    draw_together,
    of_width,
    options_of,
    with_batch_axes,
)
from attnspec.conformance.suite.gradients import cotangents
from attnspec.conformance.suite.gradients_numerics import long_sums_of_one_sign
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.heads import tokens_and_weights
from attnspec.conformance.suite.orders import Mesh, split
from attnspec.conformance.suite.problem import GROUPED, grid
from attnspec.conformance.suite.stacks import FOUR, STORED, TILES, UNEVEN
from attnspec.conformance.suite.stacks_at_sizes import WIDE, far_window
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.operation import primal

chapter = Chapter("gradients")

#: The forms that have gradients, and the rule of these.
RULES = {
    "packed_attention": "PACK-7",
    "block_sparse_attention": "SPARSE-12",
    "listed_attention": "SPARSE-12",
    "latent_attention": "LATENT-5",
}
#: Other groups have these with the cotangent of the output alone.
_MET = (
    ("latent_attention", "scale"),
    ("latent_attention", "dropout_mask"),
    ("block_sparse_attention", "bias"),
    ("block_sparse_attention", "is_causal"),
    ("listed_attention", "bias"),
)
_OPTIONS = tuple(name for name in OPTIONS if name not in ("nothing", "left padding"))


@chapter.group("PACK-7", "SPARSE-12", "LATENT-5", each=_OPTIONS)
def gradients_in_forms_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option of attention acts in the backward pass of a form, and of packed rows at sizes of tiles."""
    *names, latent = (name for name in RULES if option in options_of(STORED[name].layers))
    calls = [replace(Sizes(rest=(2, 1)), name=name) for name in (*names, names[0])]
    calls += [replace(TILES["16"], name=name) for name in names]
    calls += [replace(sizes, name=latent) for sizes in (Sizes(), Sizes(), TILES["16"])]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, option)
        rules = tuple(dict.fromkeys((RULES[sizes.name], "STACK-2", *OPTIONS[option][0])))
        yield Call(call | _cotangents(random, call), rules, operation=f"{sizes.name}_vjp")


@chapter.group("PACK-7", "SPARSE-12", "LATENT-5", each=optional_of("packed_attention_vjp"))
def gradients_alone_with(draw: Draw, name: str) -> Iterator[Yielded]:
    """One argument acts in the backward pass of a form, beside the cotangent of the output alone."""
    names = [form for form in RULES if (form, name) not in _MET]
    for call in draw_alone(draw, name, [f"{form}_vjp" for form in names], _cotangent):
        rules = (RULES[primal(call.operation)], *call.rules)
        yield replace(call, rules=rules)


@chapter.group("GRAD-9", "SHARD-10", each=("query_positions", "key_positions"))
def gradients_of_positions_alone(draw: Draw, name: str) -> Iterator[Yielded]:
    """Queries or keys alone have positions, beside causality."""
    for operation, rule in (("attention_vjp", "GRAD-9"), ("sharded_attention_vjp", "SHARD-10")):
        problem = draw.problem(GROUPED[0], "float32")
        arrays = split(problem, Mesh(2)) if rule == "SHARD-10" else problem.arguments
        call = draw_option_alone(problem, operation, name, arrays | cotangents(problem))
        yield replace(call, rules=(rule, *call.rules))


@chapter.group("PACK-7", "SPARSE-12", "LATENT-5", "STACK-2", each=tuple(TOGETHER))
def gradients_in_forms_of_options_together(draw: Draw, together: str) -> Iterator[Yielded]:
    """Options that change each other's gradients act at once, and a bias is shared by rows or by keys."""
    for random, dtype, sizes in draw_in_turn(draw, *(replace(UNEVEN, name=name) for name in RULES)):
        call = draw_together(random, dtype, STORED[sizes.name].layers, sizes, together)
        call.pop("return_max")
        call = of_width(call, tuple(TOGETHER).index(together))
        if together == "offsets":
            call["bias"] = call["bias"][:1]
        if together == "ends":
            call["bias"] = call["bias"][:, :1]
        rules = ("STACK-2", RULES[sizes.name], "GRAD-4", "GRAD-5", "GRAD-7")
        yield Call(call | _cotangents(random, call), rules, operation=f"{sizes.name}_vjp")


@chapter.group("PACK-7", "SPARSE-12", "LATENT-5", "SHAPE-1", each=(0, 2))
def gradients_in_forms_of_batch_axes(draw: Draw, count: int) -> Iterator[Yielded]:
    """A call of a form has no batch axis, or two."""
    names = [name for name in RULES if name != "packed_attention"]
    for random, dtype, sizes in draw_in_turn(draw, *(replace(FOUR, name=name) for name in names)):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, "offsets")
        name = f"{sizes.name}_vjp"
        own = with_batch_axes(name, call | _cotangents(random, call), count)
        yield Call(own, (RULES[sizes.name], "SHAPE-1", "MASK-7", "MASK-3"), operation=name)


@chapter.group("GRAD-24", each=tuple(RULES))
def scale_of_a_form(draw: Draw, form: str) -> Iterator[Yielded]:
    """The scale has a gradient in each form too, the default one and one that is given."""
    sizes = (Sizes(name=form), replace(TILES["16"], name=form), replace(UNEVEN, name=form))
    for index, (random, dtype, own) in enumerate(draw_in_turn(draw, *sizes)):
        option = ("nothing", "scale", "all together")[index]
        call = draw_call(random, dtype, STORED[form].layers, own, option)
        asked = _cotangents(random, call) | {"return_d_scale": True}
        rules = ("GRAD-24", "GRAD-6", RULES[form], *OPTIONS[option][0][:1])
        yield Call(call | asked, rules, operation=f"{form}_vjp", outputs=("d_query", "d_scale"))


@chapter.group("GRAD-18")
def nan_in_a_query_of_a_form(draw: Draw) -> Iterator[Yielded]:
    """NaN in a query, or in a token, reaches no gradient of another query, head or batch entry."""
    calls: dict[str, dict[str, Any]] = {}
    for random, dtype, sizes in draw_in_turn(draw, *(replace(UNEVEN, name=name) for name in RULES)):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes)
        calls[f"{sizes.name}_vjp"] = call | _cotangents(random, call)
    problem = draw.problem(GROUPED[0], "float32")
    own = problem.arguments | cotangents(problem)
    calls |= {"sharded_attention_vjp": split(problem, Mesh(2)) | cotangents(problem)}
    calls |= {"seeded_dropout_attention_vjp": own | {"dropout_p": 0.0, "seed": 1}}
    tokens = tokens_and_weights(problem.random, "float32", 4, 2)
    calls |= {"multi_head_attention_vjp": tokens | {"d_output": np.ones((2, 3, 4), np.float32)}}
    for operation, clean in calls.items():
        name = "tokens" if "tokens" in clean else "query"
        for number in (np.nan, np.inf):
            pair = (clean, clean | {name: spoil(clean[name], number)})
            yield Calls(tuple(Call(call, operation=operation) for call in pair), beyond_the_head)


@chapter.group("PACK-7", "MASK-8")
def gradients_of_windows_across_tiles(draw: Draw) -> Iterator[Yielded]:
    """The keys of a tile are in the windows of queries of several tiles, as offsets are large."""
    for random, dtype, sizes in draw_in_turn(draw, replace(WIDE, name="packed_attention")):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes) | far_window(sizes)
        yield Call(call | _cotangents(random, call), operation="packed_attention_vjp")


@chapter.group("PACK-7", "NUM-5")
def gradients_of_many_packed_queries(draw: Draw) -> Iterator[Yielded]:
    """The gradient of a key is a sum over hundreds of packed queries, of terms of one sign."""
    for call in long_sums_of_one_sign(draw, "queries"):
        assert isinstance(call, dict)  # noqa: S101 - for the type checker: it yields arguments
        arrays = {name: array[None] for name, array in call.items()}
        starts = {"query_starts": np.array([0, 600]), "key_starts": np.array([0, 2])}
        yield Call(arrays | starts, operation="packed_attention_vjp")


def _cotangents(random: np.random.Generator, call: dict[str, Any]) -> dict[str, Any]:
    """Draw cotangents of output and lse for the arrays of a call."""
    query, depth = call["query"], call["value_weight" if "latent" in call else "value"].shape[-1]
    wide = query.dtype if query.dtype == np.float64 else np.dtype(np.float32)
    return {
        "d_output": grid(random, (*query.shape[:-1], depth), 1.0).astype(query.dtype),
        "d_lse": grid(random, query.shape[:-1], 1.0).astype(wide),
    }


def _cotangent(random: np.random.Generator, call: dict[str, Any]) -> dict[str, Any]:
    return {"d_output": _cotangents(random, call)["d_output"]}

"""The chapter `numerics`: large, small and unequal numbers in operations beside plain attention."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.case import Misuse
from attnspec.conformance.judge.call import without
from attnspec.conformance.judge.dtypes import is_real
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.drawn_stacks import Arguments
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.plain_values import SINGLE, rules_of
from attnspec.conformance.suite.whole_calls import draw_with, whole_calls
from attnspec.operations.operation import primal

chapter = Chapter("numerics")

#: The quick part has one in so many cases, as each is of another operation.
_STEP = 4
#: The arrays that the output is a sum of, and those in scores, whose factor a scale takes back.
_ARRAYS: Mapping[str, tuple[str, ...]] = {
    "values": ("value", "value_pages", "new_value", "value_scales"),
    "keys": ("key", "key_pages", "new_key", "key_scales", "latent", "latent_pages", "latent_scales"),
}
#: The arrays of other operations.
_OTHERS: Mapping[str, tuple[str, ...]] = {
    "projection": ("tokens", "bias"),
    "scores": ("query", "bias"),
    "self_attention": ("value_weight", "value_bias"),
    "merge_partials": ("outputs",),
    "merge_partials_vjp": ("d_output", "d_lse"),
    "indexer_scores": ("index_key",),
    "dequantize": ("scales",),
    "dequantize_blocks": ("scales",),
    "rotary": ("features",),
    "rotary_vjp": ("d_rotated",),
    "alibi_bias_vjp": ("d_bias",),
}
#: Powers of two, past the range of float16 and below it. Half precision rounds to 0 what lies below.
_FACTORS = {"large": 2.0**18, "small": 2.0**-30}
#: Scales by which weights lie far below the largest one, and by which an lse lies in the hundreds.
_SCALES = {"small weights": 20.0, "large scores": -768.0}


@chapter.group("NUM-3", each=tuple(product(_FACTORS, _ARRAYS)), step=_STEP)
def numbers_of_another_size(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Values or keys, or what other results are a sum of, are past the range of float16, or below it."""
    factor, of = _FACTORS[which[0]], which[1]
    for index, operation in enumerate((*SINGLE, "attention_vjp")):
        call = draw_with(draw, operation, "float32", index=index)
        names = [name for name in _ARRAYS[of] if name in call]
        if operation != primal(operation):
            names = [name for name in call if name.startswith("d_") and of == "values"]
        if names:
            own = {"scale": 0.5 / factor} if of == "keys" else {}
            more = ("SCORE-3",) if "scale" in call | own else ()
            rules = rules_of(operation, "NUM-3", *more)
            yield Call(_times(call, names, factor) | own, rules, operation=operation)
    for operation, arrays in _OTHERS.items() if of == "values" else ():
        call = _times(whole_calls(draw, operation, "float32")[0], arrays, factor)
        yield Call(call, (OPERATIONS[operation].results[0].rule, "NUM-3"), operation=operation)


def _times(call: Arguments, names: Collection[str], factor: float) -> Arguments:
    return call | {name: (call[name] * factor).astype(call[name].dtype) for name in names if name in call}


@chapter.group("SOFT-1", "SCORE-3", each=tuple(_SCALES), step=_STEP)
def scores_far_apart(draw: Draw, kind: str) -> Iterator[Yielded]:
    """Weights are far below the largest one, and no part of a sum is left out; an lse is in the hundreds."""
    for index, operation in enumerate(own for own in SINGLE if "scale" in OPERATIONS[own].arguments):
        for dtype in ("float32", "float64"):
            call = draw_with(draw, operation, dtype, index=index) | {"scale": _SCALES[kind]}
            rules = rules_of(operation, "SCORE-3", "NUM-3")
            made = Call(call, rules, operation=operation)
            if dtype == "float32" and "return_weights" in OPERATIONS[operation].arguments:
                yield Calls((made,), _judge_without_weights, rules=rules, live=True)
            else:
                yield made


def _judge_without_weights(backend: Backend, cases: tuple[Case, ...]) -> Found:
    """Judge a call without weights, for which many functions take another path."""
    from attnspec.conformance.judge.judge import judge

    (case,) = cases
    if backend.has(case.operation, "return_weights"):
        backend = without(backend, "return_weights", operation=case.operation)
    verdict = judge(backend, case)
    return None if verdict.status == "pass" else verdict


@chapter.group("ERR-1", "ERR-14", each=("first", "second"), step=_STEP)
def array_of_another_dtype(draw: Draw, turn: str) -> Iterator[Yielded]:
    """One array in turn of each operation has another dtype: refused, or taken at its values."""
    for index, operation in enumerate((*SINGLE, "attention_vjp", *_OTHERS)):
        single = operation in SINGLE or operation == "attention_vjp"
        options = ("bias", "sinks") if single and turn == "second" else ()
        call = (
            draw_with(draw, operation, "float32", *options, index=index)
            if single
            else whole_calls(draw, operation, "float32")[0]
        )
        known = OPERATIONS[operation].arguments
        names = [
            name for name, x in call.items() if is_real(x) and "mixed" in known[name].refusals and x.size
        ]
        names = [name for name in names if name in options] or names
        if names:
            name = names[(index + (turn == "second")) % len(names)]
            random = np.random.default_rng(draw.number(index))
            fine = np.round(random.normal(size=call[name].shape) * 4096) / 4096
            misuse = replace(Misuse(name), allowed=True)
            rule = known[name].refusals["mixed"]
            yield Call(call | {name: fine}, (rule,), operation=operation, misuse=misuse)

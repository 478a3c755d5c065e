"""Calls that must be rejected: valid calls with one fault, derived from the declared operations.

The faults of an argument follow from its declared kind, shape, bounds and needs. The
declaration also has the rule that refuses each fault.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec import OPERATIONS, find_rule
from attnspec.conformance.suite.faults import (
    BATCHES,
    SIZES,
    Fault,
    faults,
    fitting,
    value_for,
    with_needs,
)
from attnspec.conformance.suite.malformed_call import Malformed, make_call, speaks_of
from attnspec.conformance.suite.malformed_positions import calls_of_positions
from attnspec.dtypes import numpy_dtype
from attnspec.operations import LETTERS, Operation
from attnspec.operations.attention import ATTENTION
from attnspec.operations.operation import primal
from attnspec.sizes import bound, misfits

#: The generated name of a call, and the name to use instead.
NAMES: Mapping[str, str] = {
    "mask of swapped axes": "mask that does not broadcast",
    "bias of more queries": "bias that does not broadcast",
    "value of fewer key heads": "other heads of value than of key",
    "value of twice the key heads": "more heads of value than of key",
    "rate alone": "rate without a mask",
    "depth of the values of 0": "depth of 0 of the values",
    "one query length in an axis": "query lengths for too few entries",
    "ids of keys of real numbers": "ids that are real numbers",
    "ids of keys of fewer keys": "ids for too few keys",
    "ids of queries with an axis less": "ids without the batch",
    "sinks of more query heads": "sinks for too many heads",
    "sinks with an axis more": "sinks for each entry",
    "heads that do not divide in split_heads": "heads that do not divide",
    "weight of swapped axes in projection": "weight that would fit transposed",
    "length past the capacity in append_cache": "cache that is full",
    "length below 0 in append_cache": "length below 0",
    "page past the last in gather_pages": "page that does not exist",
    "page below 0 in gather_pages": "page below 0",
    "rotary depth that is odd in rotary": "rotary depth that is odd",
    "rotary depth of 0 in rotary": "rotary depth of 0",
    "rotary depth past the depth in rotary": "rotary depth past the depth",
    "depth that is odd in rotary": "depth that is odd",
}


#: Sizes by letter that differ from `SIZES`, as a hashable key for caching.
Sizes = tuple[tuple[str, int], ...]


@cache
def malformed(sizes: Sizes = ()) -> tuple[Malformed, ...]:
    """List every call that a rule refuses. The order and the names are the same for all sizes.

    Newer arguments come last, so that cases whose names contain a number or a dtype keep their names.
    """
    calls = (call for call in every(sizes, stacks=False) if call.asked)
    return tuple(sorted(calls, key=_age))


def _age(call: Malformed) -> int:
    """Rank a call by when it was added: the oldest first, words, integers and gradients last."""
    if _is_of_forward(call):
        return 3
    argument = OPERATIONS[call.operation].arguments.get(call.argument)
    if argument is None:
        return 0
    fraction = argument.kind == "integer" and isinstance(call.arguments.get(call.argument), float)
    return 2 if fraction or argument.kind == "word" else int(argument.since > "2026.11.22")


@cache
def every(sizes: Sizes = (), *, stacks: bool = True) -> tuple[Malformed, ...]:
    """List every call that our own implementations refuse, whether or not a rule requires it.

    Those of operations that combine forms are many: the chapter `stacks` asks for some. Of what an operation
    refuses, its gradients are asked for one call by each rule.
    """
    calls: dict[str, Malformed] = {}
    by_rule: dict[tuple[str, str], list[Malformed]] = {}
    for operation, form in OPERATIONS.items():
        if form.stacked and not stacks:
            continue
        fit = {**SIZES, **dict(sizes if primal(operation) == "attention" else ())}
        for call in make_calls(operation, fit):
            of_forward = _is_of_forward(call)
            if of_forward and not (call.asked and find_rule(call.rule).level == "MUST"):
                continue
            before = by_rule.setdefault((operation, call.rule), [])
            again = of_forward and bool(before)
            if again and call.kind != "alone":
                continue
            # Companions and the operator have arguments of the same name: "softcap of 0 in scores".
            beside = "" if call.operation == "attention" else f" in {call.operation}"
            name = NAMES.get(f"{call.name}{beside}") or f"{call.name}{beside}"
            if name in calls:
                continue
            own = form.stacked or of_forward or not _is_refused_elsewhere(call, before)
            calls[name] = replace(call, name=name, asked=call.asked and own and not again)
            before.append(calls[name])
    return tuple(calls.values())


def make_calls(operation: str, sizes: Mapping[str, int] = SIZES) -> Iterator[Malformed]:
    """Make each call of an operation that has a fault."""
    made = (make(operation, sizes) for make in (_from_declaration, _alone, _with_other_sizes, _by_hand))
    return chain.from_iterable(made)


@cache
def further() -> Mapping[str, tuple[Malformed, ...]]:
    """List one call of each kind of fault that an operation must refuse, and is not asked to refuse yet."""
    met = {(call.operation, call.argument, call.rule, call.kind) for call in malformed()}
    chosen: dict[str, tuple[Malformed, ...]] = {}
    for call in every((), stacks=False):  # the call of `malformed`, which is cached
        shared = OPERATIONS[call.operation].reduces and call.argument in OPERATIONS["attention"].arguments
        kind = call.operation, call.argument, call.rule, call.kind
        few = shared or call.kind == "shape"  # others show it
        few |= call.kind == "alone" and _is_of_forward(call)
        if call.required and kind not in met and (call.rule == "ERR-5" or not few):
            met.add(kind)
            chosen[call.operation] = (*chosen.get(call.operation, ()), call)
    return chosen


@cache
def options_in_turn() -> tuple[Malformed, ...]:
    """List calls of forms and gradients with each other fault of an option, and all without another argument.

    Of each other fault, the call of one form is asked for, another one in turn.
    """
    asked = chain(malformed(), *further().values())
    met = {(call.operation, call.argument, call.rule, call.kind) for call in asked}
    calls: dict[tuple[str, ...], Malformed] = {}
    for call in every((), stacks=False):
        of_option = call.operation != "attention" and call.argument in ATTENTION.options
        kind = call.operation, call.argument, call.rule, call.kind
        if of_option and call.required and kind not in met and find_rule(call.rule).level == "MUST":
            calls.setdefault(kind, call)
    in_turn: dict[tuple[str, ...], list[Malformed]] = {}
    for (operation, *fault), call in calls.items():
        argument = OPERATIONS[operation].arguments[call.argument]
        each = call.kind == "alone" or (argument.broadcasts and call.kind == "shape")
        in_turn.setdefault((*fault, operation if each else ""), []).append(call)
    return tuple(calls[place % len(calls)] for place, calls in enumerate(in_turn.values()))


def _is_of_forward(call: Malformed) -> bool:
    """Whether it is a call of gradients with an invalid argument of the forward operation."""
    forward = primal(call.operation)
    return call.operation != forward and call.argument in OPERATIONS[forward].arguments


def _is_refused_elsewhere(call: Malformed, before: Collection[Malformed]) -> bool:
    """Whether another call stands for a call of an operation that reduces to another one.

    That is an earlier call of the operation that the same rule refuses: with the same argument, or with any
    argument that the other operation has and refuses by the same rules.
    """
    form = OPERATIONS[call.operation]
    if not form.reduces:
        return False
    alike = [earlier for earlier in before if earlier.asked]
    other = OPERATIONS[form.reduces].arguments.get(call.argument)
    if other is not None:
        own, its = ({**argument.refusals, "axes": ""} for argument in (form.arguments[call.argument], other))
        if own == its:
            return bool(alike)
    known = any(earlier.argument == call.argument for earlier in alike)
    return known and find_rule(call.rule).level == "MUST"


def mixed_dtypes(operation: str, dtype: str, other: str) -> Iterator[Malformed]:
    """Make calls in a dtype with one array in another (ERR-1)."""
    known = OPERATIONS[operation].arguments
    alike = [name for name, argument in known.items() if "mixed" in argument.refusals]
    arrays = OPERATIONS[operation].arrays
    for name in (arrays[0], *alike) if alike else ():
        call = fitting(operation) | with_needs(operation, known[name if name in alike else alike[0]])
        cast = {
            key: x.astype(numpy_dtype(other if key == name else dtype))
            if isinstance(x, np.ndarray) and x.dtype.kind == "f"
            else x
            for key, x in call.items()
        }
        argument = name if name in alike else alike[0]
        words = f"{known[name].noun} of {other} beside {dtype} in {operation}"
        rule = known[argument].refusals["mixed"]
        # Where the first array has the other dtype, each other array differs from it.
        names = (argument, *(arrays if name == arrays[0] else (name,)))
        yield Malformed(words, rule, argument, names, operation, MappingProxyType(cast))


def _from_declaration(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls with one invalid argument."""
    form = OPERATIONS[operation]
    for argument in form.arguments.values():
        valid = with_needs(operation, argument, sizes)
        for fault in faults(operation, argument, sizes):
            changes = valid | {argument.name: fault.value}
            if _is_fault(operation, fault, changes, sizes):
                yield make_call(
                    operation, argument, fault.name, fault.key, changes, sizes, own=fault.own, late=fault.late
                )


def _is_fault(operation: str, fault: Fault, changes: Mapping[str, Any], sizes: Mapping[str, int]) -> bool:
    """Leave out a changed shape that is still valid, because no other array has the axis."""
    by_shape = fault.key not in ("dtype", "form", "bounds", "entries")
    call = {**fitting(operation, sizes), **changes}
    return not by_shape or bool(bound(operation, call)[1] or misfits(operation, call))


def _alone(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls with an argument and without another that it needs."""
    known = OPERATIONS[operation].arguments
    for argument in known.values():
        for other in argument.needs:
            # If both need each other, the missing one is at fault. Otherwise the given one is.
            mutual = argument.name in known[other].needs
            changes = {argument.name: value_for(operation, argument, sizes)}
            at_fault = known[other] if mutual else argument
            yield make_call(operation, at_fault, f"{argument.noun} alone", "alone", changes, sizes)
        for other in argument.excludes:
            both = with_needs(operation, argument, sizes) | with_needs(operation, known[other], sizes)
            if known[other].kind == "integers":  # 0 is the default, as if it were absent
                both[other] = 1
            yield make_call(
                operation, argument, f"{argument.noun} and {known[other].noun}", "alone", both, sizes
            )


def _with_other_sizes(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls whose arrays fit each other but have an invalid size."""
    form = OPERATIONS[operation]
    for letter in LETTERS.values():
        # Only for operations with the arrays of the operator, not for a cache of depth 0.
        holding = [
            array for array in form.positional if letter.name in array.shape and array.axis("Hq", "Hkv")
        ]
        if letter.empty and holding:
            changes = _arrays_of_sizes(operation, form, sizes, {letter.name: 0})
            empty = make_call(operation, holding[0], f"{letter.noun} of 0", "", changes, sizes)
            yield replace(empty, rule=letter.empty, required=True)
        whole = LETTERS.get(letter.divides)
        if whole is not None and holding and any(whole.name in array.shape for array in form.positional):
            more = _arrays_of_sizes(operation, form, sizes, {letter.name: 2 * sizes[whole.name]})
            words = f"more {letter.noun} than {whole.noun}"
            yield make_call(operation, holding[0], words, letter.name, more, sizes)
            uneven = _arrays_of_sizes(operation, form, sizes, {whole.name: sizes[whole.name] + 1})
            words = f"{letter.noun} that do not divide"
            yield make_call(operation, holding[0], words, letter.name, uneven, sizes)


def _arrays_of_sizes(
    operation: str, form: Operation, sizes: Mapping[str, int], others: Mapping[str, int]
) -> dict[str, Any]:
    """Return the arrays that have one of some letters, with other sizes of these letters."""
    return {
        array.name: value_for(operation, array, {**sizes, **others})
        for array in form.positional
        if any(speaks_of(array, letter) for letter in others)
    }


def _by_hand(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls that do not follow from the declarations: two faults at once, or an unfit default."""
    form, known = OPERATIONS[operation], OPERATIONS[operation].arguments
    if operation == "attention":
        changes = _arrays_of_sizes(operation, form, sizes, {"D": 0, "Dv": 0})
        empty = make_call(operation, known["query"], "depth of 0 throughout", "", changes, sizes)
        yield replace(empty, rule=LETTERS["D"].empty)
        fewer = _arrays_of_sizes(operation, form, sizes, {"Hkv": 1}) | {"sinks": np.ones(1)}
        yield make_call(operation, known["sinks"], "sinks for key heads", "shape", fewer, sizes)
    if primal(operation) in ("self_attention", "multi_head_attention"):
        for letter, weight in (("D", "query_weight"), ("Dv", "value_weight")):
            changes = _arrays_of_sizes(operation, form, sizes, {letter: 0})
            empty = make_call(operation, known[weight], f"{LETTERS[letter].noun} of 0", "", changes, sizes)
            yield replace(empty, rule=LETTERS[letter].empty)
    if operation == "append_cache":
        changes = _arrays_of_sizes(operation, form, sizes, {"N": sizes["C"] + 1})
        yield make_call(
            operation, known["lengths"], "more than the cache has room for", "bounds", changes, sizes
        )
    yield from _of_lists(operation, sizes)
    if operation == "sharded_attention":
        changes = _arrays_of_sizes(operation, form, sizes, {"Hq": 4, "Hkv": 2})
        split = changes | {"head_shards": np.array([0, 3, 4])}
        call = make_call(operation, known["head_shards"], "heads of two groups in one part", "", split, sizes)
        yield replace(call, rule="SHARD-12", asked=True)
    yield from calls_of_positions(operation, sizes)
    yield from _of_codes(operation, sizes)


def _of_lists(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls with lists of other blocks than there are, and with a list for each query head."""
    form, known = OPERATIONS[operation], OPERATIONS[operation].arguments
    if operation == "block_sparse_attention":
        counts, indices = (
            value_for(operation, known[name], sizes) for name in ("block_counts", "block_indices")
        )
        lists = {"block_counts": counts + indices.shape[-1], "block_indices": indices}
        blocks = -(-sizes["S"] // sizes["Sb"])
        for words, wrong in (("past the last", blocks), ("below 0", -1)):
            changed = indices.copy()
            changed.flat[-1] = wrong
            changes = lists | {"block_indices": changed}
            yield make_call(
                operation, known["block_indices"], f"listed block {words}", "bounds", changes, sizes
            )
    if operation == "listed_attention":
        heads = 2 * sizes["Hkv"]
        more = _arrays_of_sizes(operation, form, sizes, {"Hq": heads})
        more["key_indices"] = np.zeros((*BATCHES, heads, sizes["L"], sizes["W"]), np.int64)
        yield make_call(operation, known["key_indices"], "listed key of query heads", "Hq", more, sizes)


def _of_codes(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls with codes of another format than the given one."""
    form, known = OPERATIONS[operation], OPERATIONS[operation].arguments
    if operation == "dequantize_blocks":
        changes = _arrays_of_sizes(operation, form, sizes, {"Y": 16})
        words = "packed bytes of another format"
        yield make_call(operation, known["packed"], words, "shape", changes, sizes)
    for name, argument in known.items():
        if name.endswith("codes") and not form.stacked:
            for words, encoding, code in (("past a byte", "int8", 256), ("past four bits", "e2m1fn", 16)):
                good = with_needs(operation, argument, sizes) | {"encoding": encoding}
                past = good | {name: np.full(good[name].shape, code, np.int64)}
                call = make_call(operation, argument, f"{argument.noun} {words}", "", past, sizes)
                yield replace(call, rule="QUANT-15", asked=True)
        if name.endswith("zero_points"):
            changes = {name: value_for(operation, argument, sizes), "encoding": "e4m3fn"}
            words = f"{argument.noun} of floating-point codes"
            yield make_call(operation, argument, words, "alone", changes, sizes)

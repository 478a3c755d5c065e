"""Fits calls of forms to the constraints of an implementation, for example to one query of each sequence.

Problems are drawn in sizes that fit (`attnspec.conformance.suite.problem.fitted`). The other arrays of a form
have axes of their own, so its calls are changed afterwards, by the shapes that its operation declares.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.backends.constraints import Constraints, fits
from attnspec.backends.user.lists import lists_of_key_heads
from attnspec.backends.user.scales import FLAT, SCALES, codes_of, misfit_of, repeat, shape_of
from attnspec.backends.user.small_calls import with_starts_of_queries
from attnspec.conformance.suite.fitted_codes import with_encoding
from attnspec.operations import Argument, Operation
from attnspec.operations.letters import BATCH, HEADS
from attnspec.operations.operation import primal
from attnspec.sizes import bound, is_array, misfits, turned

Call = dict[str, Any]
#: The indices that are taken of each axis, by letter.
Places = Mapping[str, NDArray[np.int64]]


def fit_form(case: Case, constraints: Constraints) -> Case:
    """Change a call of a form to fit constraints; it stays the same if it fits or cannot be changed."""
    if case.expected or case.alternatives:
        return case
    coded = with_encoding(case, constraints.encoding)
    if coded is not case.arguments:  # it may leave out zero points
        layout = {name: kind for name, kind in case.layout.items() if name in coded}
        case = replace(case, arguments=coded, layout=layout)
    operation, form = case.operation, OPERATIONS[case.operation]
    if case.misuse:
        return case
    if constraints.one_width and "output_weight" in form.arrays:
        call = _with_one_width(operation, case.arguments)
        return case if fits(constraints, call, operation) else replace(case, arguments=call)
    letters = {letter for argument in form.positional for letter in argument.shape}
    attends = {"Hq", "L", "D", "Dv"} <= letters and primal(operation) != "attention"
    return _fit_attention(case, constraints) if attends else case


def _fit_attention(case: Case, constraints: Constraints) -> Case:
    """Change a call of attention in a form to fit constraints."""
    operation, form = case.operation, OPERATIONS[case.operation]
    call = _with_axes(operation, case.arguments, constraints.axes)
    call = with_starts_of_queries(form, call) if constraints.lengths == "equal" else call
    sizes, wrong = bound(operation, call)
    if wrong:
        return case
    places = _places(sizes.letters, constraints)
    for argument in form.arguments.values():
        if is_array(call.get(argument.name)) and argument.shape:
            call[argument.name] = _take(argument, call[argument.name], places, sizes.letters)
    if "L" in places:
        call = _at_its_place(operation, call, sizes.letters["L"])
    call = _with_scales(call, constraints.scales)
    call = _with_square_blocks(call, form, sizes.letters) if constraints.square_blocks else call
    if constraints.lists:
        call = lists_of_key_heads(call, sizes.letters.get("Hq", 1) // max(sizes.letters.get("Hkv", 1), 1))
    same = call.keys() == case.arguments.keys() and all(call[name] is x for name, x in case.arguments.items())
    if same or misfits(operation, call) or fits(constraints, call, operation):
        return case
    return replace(case, arguments=call)


def _with_axes(operation: str, arguments: Mapping[str, Any], axes: int | None) -> Call:
    """Give arrays one batch axis, or one of heads, if an implementation needs it."""
    call = dict(arguments)
    if axes != 4:
        return call
    headless = bound(operation, call)[0].headless
    for argument in OPERATIONS[operation].arguments.values():
        array: Any = call.get(argument.name)
        if not is_array(array) or BATCH not in argument.shape:
            continue
        if headless and argument.axis(*HEADS) is not None and not argument.broadcasts:
            array = array[None]
        while array.ndim > len(argument.shape) and len(array):
            array = array[0]
        call[argument.name] = array
    return call


def _places(sizes: Mapping[str, int], constraints: Constraints) -> dict[str, NDArray[np.int64]]:
    """Return the indices to take of each axis whose size does not fit."""
    taken = {}
    heads, key_heads = sizes.get("Hq", 0), sizes.get("Hkv", 0)
    if constraints.one_query and sizes.get("L", 0) > 1:
        taken["L"] = np.array([sizes["L"] - 1])
    if constraints.heads == "equal" and key_heads and heads != key_heads:
        taken["Hkv"] = np.repeat(np.arange(key_heads), heads // key_heads)
    wanted = {letter: sizes[letter] for letter in ("D", "Dv") if sizes.get(letter)}
    if constraints.depths:
        largest = max(constraints.depths)
        wanted = {
            letter: min((x for x in constraints.depths if x >= size), default=largest)
            for letter, size in wanted.items()
        }
    if constraints.value_depth == "key" and len(wanted) > 1:
        wanted["Dv"] = wanted["D"]
    depths = {
        letter: np.arange(size) % sizes[letter] for letter, size in wanted.items() if size != sizes[letter]
    }
    return taken | depths


def _take(argument: Argument, array: Any, places: Places, sizes: Mapping[str, int]) -> Any:
    """Take indices of the axes of an array. An axis that broadcasts stays, and one of blocks is repeated."""
    for axis, letter in enumerate(reversed(argument.shape), start=1):
        whole, _, block = letter.partition("/")
        if whole not in places or axis > array.ndim:
            continue
        index, size = places[whole], sizes[whole]
        if block:
            index, size = np.unique(index // sizes[block]), -(-size // sizes[block])
        count = array.shape[-axis]
        if count == size or (argument.by_blocks and count > 1):
            array = np.take(array, index // (size // count), axis=-axis)
    return array


def _at_its_place(operation: str, call: Call, queries: int) -> Call:
    """Keep the distances of the last query, and say of about half of the lengths that it is past them."""
    default = OPERATIONS[operation].arguments["query_offset"].default
    offset = call.get("query_offset", default)
    if "query_positions" not in call and offset is not None and (call.get("is_causal") or call.get("window")):
        moved = np.asarray(offset, np.int64) + queries - 1
        call = call | {"query_offset": moved if is_array(offset) else int(moved)}
    lengths = call.get("query_lengths")
    if lengths is not None:
        kept = np.asarray(lengths) > queries // 2
        call = call | {"query_lengths": kept.astype(np.int64) if is_array(lengths) else int(kept)}
    return call


def _with_scales(call: Call, kind: str) -> Call:
    """Give scales and zero points of codes the one shape that an implementation takes."""
    granularity = FLAT.get(kind, kind)
    if not granularity or not misfit_of(granularity, call):
        return call
    fitted = {}
    for name in (name for name in call if name.endswith((SCALES, "_zero_points"))):
        codes = call[codes_of(name, call)].shape
        shape = shape_of(granularity, codes)
        last = (1, *shape)[-2:]
        whole = repeat(call[name], codes, np)[..., : last[-2], : last[-1]]
        fitted[name] = np.resize(whole, shape)  # the first numbers, where all batch entries share them
    return call | fitted


def _with_one_width(operation: str, arguments: Mapping[str, Any]) -> Call:
    """Give tokens, values and the output of multi-head attention the width of its queries."""
    call, sizes = dict(arguments), bound(operation, arguments)[0].letters
    if not {"Hq", "Hkv", "D", "Dv"} <= sizes.keys():
        return call
    depth = np.arange(sizes["D"])
    taken = {x: np.arange(sizes["Hq"] * sizes["D"]) % sizes[x] for x in ("E", "E'", "F") if sizes.get(x)}
    for heads in ("Hq", "Hkv"):
        features = np.arange(sizes[heads])[:, None] * sizes["Dv"] + depth % max(sizes["Dv"], 1)
        taken[f"{heads}*Dv"] = features.ravel()
    for argument in OPERATIONS[operation].arguments.values():
        if is_array(call.get(argument.name)):
            shape = turned(argument.shape) if call.get("convention") in argument.turns else argument.shape
            for place, letter in enumerate(reversed(shape), start=1):
                if letter in taken:
                    call[argument.name] = np.take(call[argument.name], taken[letter], axis=-place)
    return call


def _with_square_blocks(call: Call, form: Operation, sizes: Mapping[str, int]) -> Call:
    """Divide blocks into blocks of as many queries as keys. Blocks of keys in lists stay whole."""
    if "block_indices" in call or not {"query_block", "key_block"} <= call.keys():
        return call
    size = gcd(call["query_block"], call["key_block"])
    divided: Call = {"query_block": size, "key_block": size}
    for name, given in call.items():
        array = given
        for axis, letter in enumerate(reversed(form.arguments[name].shape), start=1):
            whole, _, block = letter.partition("/")
            count = -(-sizes[whole] // sizes[block]) if whole in sizes and block in sizes else 0
            if count and is_array(array) and axis <= array.ndim and array.shape[-axis] == count:
                array = np.repeat(array, sizes[block] // size, axis=-axis)
                array = np.take(array, np.arange(-(-sizes[whole] // size)), axis=-axis)
        divided.setdefault(name, array)
    return divided

"""The linter of the golden vectors: what a schema cannot say."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.case import SCHEMA, VECTORS, Case, cases, read
from attnspec.errors import SpecError
from attnspec.operations import OPERATIONS
from attnspec.rule import find_rule, rules

#: A golden vector is to be read: no array of it has more elements.
MOST_ELEMENTS = 64

#: Rules that only a live test can show, so that no stored case is asked for.
LIVE = frozenset(
    {
        "NUM-8",  # strides are not in a vector: arrays are spelled in row-major order
        "NUM-9",  # takes the same call twice
        "NUM-10",  # takes a batch entry alone and in its batch
        "ERR-13",  # takes two calls, one after the other
        "ERR-14",  # two answers conform, an error and a value; a case has one
    }
)

Arguments = Mapping[str, Any]
Shape = tuple[int, ...]


def lint(folder: Path = VECTORS) -> list[str]:
    """List what is wrong with the golden vectors of a folder; nothing, when nothing is.

    Parameters
    ----------
    folder : Path, optional
        By default that of the standard.

    Raises
    ------
    SpecError
        When a file cannot be read, or an id stands twice.

    Examples
    --------
    >>> from attnspec.lint import lint
    >>> lint()
    []
    """
    for path in sorted(folder.glob("*.json")):
        if path.name != SCHEMA:
            read(path)  # against the schema: loading our own takes that for granted
    found = cases(folder)
    problems = [f"case {case.id}: {problem}" for case in found for problem in _of_case(case)]
    cited = {rule for case in found for rule in case.rules}
    problems += [f"rule {rule_id}: expected no case, as it is in LIVE" for rule_id in sorted(cited & LIVE)]
    wanted = [rule.id for rule in rules() if rule.id not in LIVE]
    problems += [f"rule {rule_id}: got no case, expected one" for rule_id in wanted if rule_id not in cited]
    return problems


def _of_case(case: Case) -> list[str]:
    problems = []
    if case.id.partition("-")[0] != case.chapter:
        problems.append(f"id: expected it to begin with {case.chapter}")
    problems += [problem for rule_id in case.rules for problem in _of_rule(rule_id, None)]
    operation = OPERATIONS[case.operation]
    allowed = {*operation.arrays, *operation.options}
    problems += [
        f"argument {name}: expected one of {case.operation}" for name in case.arguments if name not in allowed
    ]
    absent = [name for name in operation.arrays if name not in case.arguments]
    problems += [f"argument {name}: got none, expected one" for name in absent]
    for name, x in case.arguments.items():
        if isinstance(x, np.ndarray) and x.size > MOST_ELEMENTS:
            problems.append(f"argument {name}: got {x.size} elements, expected {MOST_ELEMENTS} at most")
    if case.misuse is not None:
        if case.misuse.argument not in allowed:  # it may be missing from the call: that may be the fault
            problems.append(f"misuse: got {case.misuse.argument}, expected an argument of {case.operation}")
        return problems
    if set(case.expected) != set(operation.outputs):
        problems.append(f"expected: got {', '.join(case.expected)}, expected {', '.join(operation.outputs)}")
    if not absent:
        problems += _of_arguments(case)
        problems += _of_expected(case)
    for other in case.alternatives:
        problems += _of_rule(other.rule, other.variant)
        problems += _of_alternative(other.variant, other.expected, case.expected)
    return problems


def _of_rule(rule_id: str, variant: str | None) -> list[str]:
    try:
        rule = find_rule(rule_id)
    except SpecError as error:
        return [str(error)]
    known = [other.name for other in rule.variants]
    if variant is not None and variant not in known:
        return [
            f"alternative: got variant {variant!r} of {rule_id}, expected one of {', '.join(known) or 'none'}"
        ]
    return []


def _of_alternative(variant: str, given: Arguments, expected: Arguments) -> list[str]:
    left, right = ({name: x.shape for name, x in group.items()} for group in (given, expected))
    if left != right:
        return [f"alternative {variant}: got shapes {left}, expected {right}"]
    if all(np.array_equal(x, expected[name], equal_nan=True) for name, x in given.items()):
        return [f"alternative {variant}: got the expected values, expected others"]
    return []


def _of_arguments(case: Case) -> list[str]:
    """Find what would make a call one to refuse."""
    problems = []
    for name, x in case.arguments.items():
        kind = _KINDS.get(name, "f")
        if isinstance(x, np.ndarray) and _kind(x) != kind:
            problems.append(f"argument {name}: got dtype {x.dtype}, expected {_WORDS[kind]}")
    if case.operation != "attention":
        return problems
    query, key, value = (case.arguments[name].shape for name in ("query", "key", "value"))
    if key[:-1] != value[:-1] or query[-1] != key[-1] or query[:-3] != key[:-3] or len(query) != len(key):
        problems.append(f"query, key, value: got shapes {query}, {key}, {value}, which do not fit")
        return problems
    if len(query) > 2 and (key[-3] == 0 or query[-3] % key[-3]):
        problems.append(f"key: got {key[-3]} heads, expected a divisor of {query[-3]}")
    problems += _of_options(case.arguments, query, key[-2])
    return problems


def _of_options(arguments: Arguments, query: Shape, keys: int) -> list[str]:
    problems = []
    batch, heads = query[:-3], query[-3:-2] or (1,)
    exact = {
        "sinks": heads,
        "query_segment_ids": (*batch, query[-2]),
        "key_segment_ids": (*batch, keys),
    } | dict.fromkeys(("query_offset", "query_lengths", "key_lengths"), batch)
    for name, shape in exact.items():
        x = arguments.get(name)
        if isinstance(x, np.ndarray) and x.shape != shape:
            problems.append(f"argument {name}: got shape {x.shape}, expected {shape}")
    whole = (*query[:-1], keys)
    for name in ("bias", "mask", "dropout_mask"):
        x = arguments.get(name)
        if isinstance(x, np.ndarray) and not _broadcasts(x.shape, whole):
            problems.append(f"argument {name}: got shape {x.shape}, expected it to broadcast to {whole}")
    window = arguments.get("window")
    if window is not None and not _is_window(window):
        problems.append(f"argument window: got {window}, expected two, each None or an integer from 0")
    return problems


#: The kind of dtype of an array, where it is not floating-point.
_KINDS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("mask", "dropout_mask"), "b")
    | dict.fromkeys(
        (
            *("query_offset", "query_lengths", "key_lengths", "query_segment_ids", "key_segment_ids"),
            *("lengths", "offset", "block_table"),
        ),
        "i",
    )
)
_WORDS = MappingProxyType({"b": "booleans", "i": "integers", "f": "floating-point numbers"})


def _kind(x: Any) -> str:
    return x.dtype.kind if x.dtype.kind in "bi" else "f"  # NumPy has no kind for bfloat16


def _broadcasts(shape: Shape, whole: Shape) -> bool:
    if len(shape) > len(whole):
        return False
    tail = whole[len(whole) - len(shape) :]
    return all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def _is_window(window: Any) -> bool:
    if not isinstance(window, tuple) or len(window) != 2:
        return False
    return all(side is None or (type(side) is int and side >= 0) for side in window)


def _of_expected(case: Case) -> list[str]:
    shapes = _SHAPES[case.operation](case.arguments)
    return [
        f"expected {name}: got shape {x.shape}, expected {shapes[name]}"
        for name, x in case.expected.items()
        if name in shapes and x.shape != shapes[name]
    ]


def _attention(a: Arguments) -> dict[str, Shape]:
    rows = a["query"].shape[:-1]  # (*B, Hq, L)
    return {"output": (*rows, a["value"].shape[-1]), "lse": rows, "weights": (*rows, a["key"].shape[-2])}


def _projection(a: Arguments, weight: str = "weight") -> Shape:
    *batch, first, last = a["tokens"].shape
    if a.get("convention") == "column":
        return (*batch, a[weight].shape[0], last)
    return (*batch, first, a[weight].shape[1])


def _split(features: Shape, heads: int) -> Shape:
    *batch, positions, depth = features
    return (*batch, heads, positions, depth // heads)


def _merge(split: Shape) -> Shape:
    *batch, heads, positions, depth = split
    return (*batch, positions, heads * depth)


def _gather(pages: Shape, table: Shape) -> Shape:
    _, heads, positions, depth = pages
    return (*table[:-1], heads, table[-1] * positions, depth)


#: The shapes of the outputs, from the arguments of a call.
_SHAPES: Mapping[str, Callable[[Arguments], dict[str, Shape]]] = MappingProxyType(
    {
        "projection": lambda a: {"projected": _projection(a)},
        "scores": lambda a: {"scores": (*a["query"].shape[:-1], a["key"].shape[-2])},
        "attention": _attention,
        "self_attention": lambda a: {"output": _projection(a, "value_weight")},
        "split_heads": lambda a: {"split": _split(a["features"].shape, a["heads"])},
        "merge_heads": lambda a: {"merged": _merge(a["split"].shape)},
        "multi_head_attention": lambda a: {"output": _projection(a, "output_weight")},
        "append_cache": lambda a: {"appended": a["cache"].shape},
        "gather_pages": lambda a: {"gathered": _gather(a["pages"].shape, a["block_table"].shape)},
        "merge_partials": lambda a: {"output": a["outputs"].shape[1:], "lse": a["lses"].shape[1:]},
        "rotary": lambda a: {"rotated": a["features"].shape},
        "alibi_bias": lambda a: {"bias": (*a["query"].shape[:-1], a["key"].shape[-2])},
    }
)

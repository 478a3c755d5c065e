"""Which options of attention the suite calls in which size class.

A kernel chooses one of several paths by the sizes of a call, and implements each option in each of
them. An option is covered in a size class if a call of the class gives this option and no other one,
because an implementation may lack the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.conformance.suite.group import Item
from attnspec.dtypes import SHORT


class Sizes(NamedTuple):
    """The sizes of a call of attention. `batch` holds the lengths of the batch axes."""

    batch: tuple[int, ...]
    heads: int
    key_heads: int
    queries: int
    keys: int
    depth: int
    value_depth: int

    @property
    def groups(self) -> int:
        """The number of query heads that share a key head."""
        return self.heads // max(self.key_heads, 1)

    @property
    def axes(self) -> int:
        """The number of batch axes."""
        return len(self.batch)


def sizes_of(arguments: Mapping[str, Any]) -> Sizes:
    """Return the sizes of a call."""
    query, key, value = (arguments[name].shape for name in ("query", "key", "value"))
    heads, key_heads = (shape[-3] if len(shape) > 2 else 1 for shape in (query, key))
    return Sizes(query[:-3], heads, key_heads, query[-2], key[-2], query[-1], value[-1])


#: The size classes, by name. Each is about a size that selects a path or a tile in kernels.
SIZE_CLASSES: Mapping[str, Callable[[Sizes], bool]] = {
    "one query, more keys": lambda s: s.queries == 1 < s.keys,
    "one query, more than 128 keys": lambda s: s.queries == 1 and s.keys > 128,
    "a few queries, more than 128 keys": lambda s: 1 < s.queries <= 8 and s.keys > 128,
    "queries past 64": lambda s: s.queries > 64,
    "queries past 128": lambda s: s.queries > 128,
    "queries a multiple of 64": lambda s: s.queries > 0 == s.queries % 64,
    "keys past 16": lambda s: s.keys > 16,
    "keys past 32": lambda s: s.keys > 32,
    "keys past 64": lambda s: s.keys > 64,
    "keys past 128": lambda s: s.keys > 128,
    "keys past 256": lambda s: s.keys > 256,
    "keys a multiple of 64": lambda s: s.keys > 0 == s.keys % 64,
    "keys a multiple of 128": lambda s: s.keys > 0 == s.keys % 128,
    "depth past 64": lambda s: s.depth > 64,
    "depth past 128": lambda s: s.depth > 128,
    "depth no multiple of 8, keys past 128": lambda s: s.depth % 8 > 0 and s.keys > 128,
    "another depth of values, keys past 128": lambda s: s.value_depth != s.depth and s.keys > 128,
    "heads past 8": lambda s: s.heads > 8,
    "heads past 16": lambda s: s.heads > 16,
    "batch past 4": lambda s: int(np.prod(s.batch)) > 4,
    "two batch axes": lambda s: s.axes == 2,
    "three batch axes": lambda s: s.axes == 3,
    "two batch axes, queries past 64": lambda s: s.axes == 2 and s.queries >= 64,
    "groups of 3": lambda s: s.groups == 3,
    "groups of 5": lambda s: s.groups == 5,
    "groups of 8": lambda s: s.groups == 8,
    "groups of 16": lambda s: s.groups == 16,
    "grouped heads, one query": lambda s: s.groups > 1 == s.queries,
    "grouped heads, queries and keys past 64": lambda s: s.groups > 1 and min(s.queries, s.keys) > 64,
}


@dataclass(frozen=True)
class Form:
    """One form of an option."""

    given: frozenset[str]  # the optional arguments that a call of this form gives
    holds: Callable[[Case], bool] = lambda _: True  # whether their values have this form


def _form(*given: str, holds: Callable[[Case], bool] = lambda _: True) -> Form:
    return Form(frozenset(given), holds)


def _array(name: str, fits: Callable[[tuple[int, ...], tuple[int, ...]], bool]) -> Callable[[Case], bool]:
    """Compare the shape of an argument, all axes written out, with that of the scores."""

    def holds(case: Case) -> bool:
        s = sizes_of(case.arguments)
        whole = (*s.batch, s.heads, s.queries, s.keys)
        shape = case.arguments[name].shape
        return fits((*(1,) * (len(whole) - len(shape)), *shape), whole)

    return holds


def _whole(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return shape == whole


def _is_by_heads(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return shape[-3] == whole[-3] and max(shape[:-3], default=1) == 1 and shape[-2:] != (1, 1)


def _is_by_batch_entries(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return shape[:-3] == whole[:-3] and shape[-3] == 1


def _is_by_queries(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return shape[-2:] == (whole[-2], 1)


def _is_by_keys(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return max(shape[:-1], default=1) == 1 and shape[-1] == whole[-1]


def _same_dtype(case: Case) -> bool:
    return str(case.arguments["bias"].dtype) == case.dtype


def _one(name: str) -> Callable[[Case], bool]:
    """Whether an integer is one for all batch entries. A negative offset is another form."""
    return lambda case: np.ndim(case.arguments[name]) == 0 <= case.arguments[name]


def _per_entry(name: str, axes: int) -> Callable[[Case], bool]:
    return lambda case: np.ndim(case.arguments[name]) == axes


def _empty_row(case: Case) -> bool:
    """Whether the mask or the bias leaves a query without a key."""
    mask, bias = case.arguments.get("mask"), case.arguments.get("bias")
    allowed = np.asarray(mask) if bias is None else ~np.isneginf(bias.astype(np.float64))
    return not allowed.any(axis=-1).all()


def _is_judged(case: Case, output: str) -> bool:
    return not case.outputs or output in case.outputs


_whole_mask, _whole_bias = _array("mask", _whole), _array("bias", _whole)


def _finite_bias(case: Case) -> bool:
    return _whole_bias(case) and _same_dtype(case) and not _minus_infinity(case)


def _behind(case: Case) -> bool:
    return bool(np.any(case.arguments["query_offset"] < 0))


def _minus_infinity(case: Case) -> bool:
    return bool(np.isneginf(case.arguments["bias"].astype(np.float64)).any())


_OFFSET = ("is_causal", "query_offset")
_SEGMENTS = ("query_segment_ids", "key_segment_ids")
_POSITIONS = ("is_causal", "query_positions", "key_positions")
_INTEGERS = {"query_offset": _OFFSET, "query_lengths": ("query_lengths",), "key_lengths": ("key_lengths",)}
#: The forms of options, by name.
FORMS: Mapping[str, Form] = (
    {
        "nothing": _form(),
        "scale": _form("scale", holds=lambda case: case.arguments["scale"] > 0),
        "negative scale": _form("scale", holds=lambda case: case.arguments["scale"] < 0),
        "softcap": _form("softcap"),
        "bias": _form("bias", holds=_finite_bias),
        "bias of heads": _form("bias", holds=_array("bias", _is_by_heads)),
        "bias of minus infinity": _form(
            "bias", holds=lambda case: _minus_infinity(case) and not _empty_row(case)
        ),
        "bias of an empty row": _form("bias", holds=_empty_row),
        "bias of another dtype": _form("bias", holds=lambda case: not _same_dtype(case)),
        "mask": _form("mask", holds=lambda case: _whole_mask(case) and not _empty_row(case)),
        "mask of heads": _form("mask", holds=_array("mask", _is_by_heads)),
        "mask of batch entries": _form("mask", holds=_array("mask", _is_by_batch_entries)),
        "mask of queries": _form("mask", holds=_array("mask", _is_by_queries)),
        "mask of keys": _form("mask", holds=_array("mask", _is_by_keys)),
        "mask of an empty row": _form("mask", holds=lambda case: _whole_mask(case) and _empty_row(case)),
        "key_lengths of 0": _form(
            "key_lengths", holds=lambda case: not np.all(case.arguments["key_lengths"])
        ),
        "is_causal": _form("is_causal"),
        "window": _form("window"),
        "window and offset": _form("window", "query_offset"),
        "segments": _form(*_SEGMENTS),
        "positions": _form(*_POSITIONS),
        "sinks": _form("sinks"),
        "dropout": _form("dropout_mask"),
        "dropout_rate": _form("dropout_mask", "dropout_rate"),
        "lse": _form(holds=lambda case: _is_judged(case, "lse")),
        "weights": _form(holds=lambda case: _is_judged(case, "weights")),
        "weights beside is_causal": _form("is_causal", holds=lambda case: _is_judged(case, "weights")),
    }
    | {name: _form(*given, holds=_one(name)) for name, given in _INTEGERS.items()}
    | {"negative query_offset": _form(*_OFFSET, holds=_behind)}
    | {
        f"{name} of {axes} batch axes": _form(*given, holds=_per_entry(name, axes))
        for name, given in _INTEGERS.items()
        for axes in (1, 2, 3)
    }
)
#: The arguments of each source of masking.
SOURCES: Mapping[str, tuple[str, ...]] = {
    name: (name,) for name in ("mask", "bias", "is_causal", "window", "query_lengths", "key_lengths")
} | {"query_offset": _OFFSET, "segments": _SEGMENTS, "positions": _POSITIONS}
#: The sizes in which a pair of sources is called: long in both axes, or one query with many keys.
PAIR_CLASSES: Mapping[str, Callable[[Sizes], bool]] = {
    "queries past 64, keys past 128": lambda s: s.queries > 64 and s.keys > 128,
    "one query, more than 128 keys": SIZE_CLASSES["one query, more than 128 keys"],
}
#: The last allowed key or query, and their neighbours, at the edges of tiles.
EDGES = (63, 64, 65, 127, 128, 129)


def why_impossible(form: str, size_class: str) -> str:
    """Return why no call can have a form and a size class, or an empty string."""
    words = {"two": 2, "three": 3}
    asked = words.get(size_class.partition(" batch axes")[0])
    if asked and form.endswith("batch axes") and f"of {asked} " not in form:
        return f"the integers have {form.rpartition(' of ')[2]}"
    sources = form.split(" and ") if " and " in form else []
    if {"query_lengths", "is_causal"} & {*sources} and size_class.startswith("one query"):
        return "a length or a causal mask leaves a single query nothing that the other source could take away"
    return ""


def calls_of(items: Iterable[Item]) -> Iterator[Case]:
    """Yield the calls of attention among some items that have to be computed."""
    for item in items:
        for case in item.calls:
            if case.operation == "attention" and (case.misuse is None or case.misuse.allowed):
                yield case


def covered_forms(items: Iterable[Item]) -> set[tuple[str, str, str]]:
    """Return the combinations that the calls of some items have, in the form of `missing`."""
    return {combination for case in calls_of(items) for combination in _combinations(case)}


def missing_forms(items: Iterable[Item]) -> list[tuple[str, str, str]]:
    """List what no call has: a form of an option, a size class, and ``float32`` or ``half``.

    Pairs of sources of masking and the edges of tiles are listed in the same way.
    """
    found = covered_forms(items)
    return sorted(combination for combination in _required_forms() if combination not in found)


def _required_forms() -> Iterator[tuple[str, str, str]]:
    pairs = [" and ".join(pair) for pair in combinations(sorted(SOURCES), 2)]
    # Offsets and positions come with a causal mask, and exclude each other.
    for pair in ("is_causal and query_offset", "is_causal and positions", "positions and query_offset"):
        pairs.remove(pair)
    for forms, classes in ((FORMS, SIZE_CLASSES), (pairs, PAIR_CLASSES)):
        for form in forms:
            for size_class in classes:
                if not why_impossible(form, size_class):
                    yield from ((form, size_class, kind) for kind in ("float32", "half"))
    for edge in EDGES:
        for name in ("query_lengths", "key_lengths", "query_offset", "window, left", "window, right"):
            yield from ((name, f"edge at {edge}", kind) for kind in ("float32", "half"))


def _combinations(case: Case) -> Iterator[tuple[str, str, str]]:
    kind = "half" if case.dtype in SHORT else case.dtype
    given = {name for name, x in case.arguments.items() if x is not None}
    given -= {*OPERATIONS["attention"].arrays}
    s = sizes_of(case.arguments)
    classes = [name for name, holds in SIZE_CLASSES.items() if holds(s)]
    for name, form in FORMS.items() if classes else ():
        judged = _is_judged(case, "output") or name.startswith("weights")
        if judged and given == form.given and form.holds(case):
            yield from ((name, size_class, kind) for size_class in classes)
    for first, second in combinations(sorted(SOURCES), 2):
        if given == {*SOURCES[first], *SOURCES[second]}:
            yield from (
                (f"{first} and {second}", name, kind) for name, holds in PAIR_CLASSES.items() if holds(s)
            )
    for name, edges in _edges(case).items():
        yield from ((name, f"edge at {edge}", kind) for edge in edges)


def _edges(case: Case) -> dict[str, set[int]]:
    """Return the numbers of keys or queries that integers of a call leave to its first query."""
    given = case.arguments
    found: dict[str, set[int]] = {}
    for name in ("query_lengths", "key_lengths"):
        if given.get(name) is not None:
            found[name] = set(np.ravel(given[name]).tolist())
    offsets = np.ravel(given.get("query_offset", 0)).tolist()
    if given.get("is_causal") and given.get("query_offset") is not None:
        found["query_offset"] = {offset + 1 for offset in offsets}
    left, right = given.get("window") or (None, None)
    if left is not None:
        found["window, left"] = {offset - left for offset in offsets}
    if right is not None:
        found["window, right"] = {offset + right + 1 for offset in offsets}
    return found


def missing_over_ranks(
    items: Iterable[Item], options: Iterable[str], ranks: Iterable[int], orders: Iterable[str]
) -> list[tuple[str, str, str]]:
    """List what no sharded call has: an operation, an option, a number of ranks or an order, and a dtype.

    The kinds of dtypes are ``float64``, ``float32`` and ``half``. An order is that of a group of this name.
    """
    met = set()
    for case in (case for item in items for case in item.calls):
        kind = "half" if case.dtype in SHORT else case.dtype
        shards = len(case.arguments["query_shards"]) - 1
        words = (case.group.partition(": ")[2], f"over {shards}")
        met |= {(case.operation, word, kind) for word in words}
    wanted = (*options, *orders, *(f"over {count}" for count in ranks))
    kinds = ("float64", "float32", "half")
    every = {
        (operation, word, kind)
        for operation in ("sharded_attention", "sharded_attention_vjp")
        for word in wanted
        for kind in kinds
        if (operation, word) not in _NOT_OVER_RANKS
    }
    return sorted(every - met)


#: Gradients are called with one option of all that is nothing, and with a mask of every shape but one.
_NOT_OVER_RANKS = {("sharded_attention_vjp", "nothing"), ("sharded_attention_vjp", "mask of batch entries")}

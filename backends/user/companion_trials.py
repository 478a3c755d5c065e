"""What the parameters of a form may be by their names, and the calls that would confirm it."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from attnspec import OPERATIONS, Operation
from attnspec.backends.constraints import is_of_attention
from attnspec.backends.user.confirm import IN_FLOAT32, PRECISIONS
from attnspec.backends.user.convention import OTHER, Convention
from attnspec.backends.user.description import Known
from attnspec.backends.user.enough_keys import Companion
from attnspec.backends.user.flags import BY_CALLS, CHANGES, RAISES, SAME, sentence, unknown_flags, with_flag
from attnspec.backends.user.scales import CODES, GROUP, INT8, SCALES, UINT8
from attnspec.backends.user.slopes import linear_bias
from attnspec.backends.user.small_calls import (
    KEYS,
    QUERIES,
    Call,
    calls_of_other_widths,
    cast,
    option_values,
    scales_of,
    share_by_batch,
    square_call,
)
from attnspec.backends.user.trials import (
    NUMBERS,
    UNCONFIRMED,
    WIDE,
    is_clear,
    number_of_open_sides,
    right_side,
)
from attnspec.operations.aliases import SIZES, SLOPES, meant_in
from attnspec.operations.letters import BATCH


def is_nearer(distance: float, convention: Convention, other: float, before: Convention) -> bool:
    """Whether results are nearer to the reference. Those of one query, or always causal, are in any case."""
    special, plain = (bool(x.always or x.one_query) for x in (convention, before))
    return distance * (2 if special and not plain else 1) < other


def is_on(form: Operation, ours: str, function: Callable[..., Any], own: str) -> bool:
    """Whether a parameter is a flag that is True by default, and False in the standard."""
    default = inspect.signature(function).parameters[own].default
    return default is True and form.parameters[ours].default is False


def first_entry(form: Operation, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call without batch axes, of its first entry."""
    batched = {name for name in call if form.arguments[name].axis(BATCH) is not None}
    entry = {name: x[0] if name in batched else x for name, x in call.items()}
    return {name: int(x) if isinstance(x, np.integer) else x for name, x in entry.items()}


def name_parameters(
    operation: str, parameters: Iterable[str], known: Known
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what parameters are by their names: arguments of an operation, and sizes."""
    names, sizes = dict(known.convention.names), dict(known.convention.sizes)
    used = {*names.values(), *known.convention.others}
    for own in (own for own in parameters if own not in used):
        size = next((ours for ours, theirs in SIZES.items() if own.lower() in theirs), "")
        size = size if size != GROUP or "encoding" in OPERATIONS[operation].arguments else ""
        meanings = [own] if own in OPERATIONS[operation].parameters else meant_in(operation, own)
        argument = next((ours for ours in meanings if ours not in names), "")
        if argument:
            names[argument] = own
        elif size:
            sizes[size] = own
    if {"new_key", "query_offset"} <= names.keys() and "key_lengths" not in names:
        names["key_lengths"] = names.pop("query_offset")  # the new keys come from there on
    return names, sizes


def names_of_results(returned: Any) -> tuple[str, ...] | None:
    """Name several results: the second is the lse if it has an axis less, and others are not judged."""
    if not isinstance(returned, tuple | list) or len(returned) < 2:
        return None
    first, second = (getattr(x, "ndim", 0) for x in returned[:2])
    return ("output", "lse" if second == first - 1 else OTHER, *[OTHER] * len(returned[2:]))


def trials_of_form(
    convention: Convention, ours: str, own: Mapping[str, str], call: Mapping[str, Any], opens: int | None
) -> Iterator[tuple[Convention, dict[str, Any], dict[str, Any], dict[str, str]]]:
    """Yield guesses of what an option means: its call, the call of the reference, and the variants."""
    named = replace(convention, names={**convention.names, **own})
    options = option_values(call)
    if ours not in options:
        return
    given = {name: options[name] for name in own}
    if ours == "return_lse":
        for returns in ((), ("output", "lse"), ("output", "lse", OTHER)):
            yield replace(named, returns=returns), given, given, {}
            yield replace(named, returns=returns, lse_layout="BSHD"), given, given, {}
    elif ours in ("is_causal", "window"):
        for there, shown in windows(named, given, opens) if ours == "window" else ((named, given),):
            yield there, shown, shown, {}
            if "key_starts" in call or "block_table" not in call:
                yield there, shown, shown | {"query_offset": end_of(call)}, variant_at_end(call)
    elif ours.endswith(SCALES):
        for kind in ("head", "token", "tensor"):
            scales = {ours: scales_of(call, kind)[ours]}
            yield named, scales, scales, {}
    else:
        yield named, given, given, {}
        yield from _of_a_batch(named, given) if ours == "block_mask" else ()


def _of_a_batch(named: Convention, given: Call) -> Iterator[tuple[Convention, Call, Call, dict[str, str]]]:
    """Yield the guess that a mask of blocks has no axis of batch entries."""
    shared = share_by_batch(given)
    yield replace(named, mask_axes=3), shared, shared, {}


def end_of(call: Mapping[str, Any]) -> Any:
    """Return the offset, or those of packed rows, at which the last query is at the last key."""
    if "key_starts" in call:
        return np.diff(call["key_starts"]) - np.diff(call["query_starts"])
    keys, queries = (call[name].shape[-2] if name in call else 0 for name in ("key", "query"))
    return int(keys - queries) if keys and queries else KEYS - QUERIES


def variant_at_end(call: Mapping[str, Any]) -> dict[str, str]:
    """Return the variant of causality that ends at the last key."""
    return {"PACK-5" if "key_starts" in call else "MASK-3": "bottom-right"}


class _Calls(Companion, Protocol):
    """Calls that say how far their results are from those of the reference."""

    function: Callable[..., Any]
    operation: str
    form: Operation
    raised: Exception | None
    by_distance: bool
    beyond: float

    def draw(self, convention: Convention, heads: int, dtype: str) -> Call: ...

    def distance(
        self,
        convention: Convention,
        call: Mapping[str, Any],
        meaning: Mapping[str, Any] | None = None,
        tolerance: float = ...,
    ) -> float | None: ...

    def results(self, convention: Convention, call: Mapping[str, Any]) -> list[Any] | None: ...


def causal_of_several(
    calls: _Calls, convention: Convention, known: Known, dtype: str, scale: Call
) -> Convention | None:
    """Return the convention of a function that takes several queries too, and is always causal; or None.

    One query is at the last key, where causality has no effect. The results of several may be wrong.
    """
    named = "is_causal" in convention.names or {"always", "one_query"} & known.keys
    if convention.one_query != "axis" or named or not is_of_attention(calls.operation):
        return None
    several = replace(convention, one_query=False)
    causal = replace(several, always={"is_causal": True})
    plain, off = (calls.distance(own, calls.draw(own, 4, dtype) | scale) for own in (several, causal))
    return causal if plain is not None and off is not None and off < plain / 2 else None


def infer_option(
    calls: _Calls, convention: Convention, option: str, own: Mapping[str, str], call: Mapping[str, Any]
) -> tuple[Convention, dict[str, str], dict[str, str], dict[str, str]] | None:
    """Return the convention with an option, the variants that it shows, the reasons, and limits; or None.

    A function may take causality and windows only with as many keys as queries.
    """
    opens = number_of_open_sides(calls.function, own[option])
    square = square_call(dict(call)) if option in ("is_causal", "window") else {}
    taken: list[tuple[float, bool, Convention, dict[str, str]]] = []
    for drawn in filter(None, (call, share_by_batch(square) if convention.mask_axes else square)):
        for trial, options, meaning, variants in trials_of_form(convention, option, own, drawn, opens):
            if trial.open_side == WIDE and any(x[2].open_side is None for x in taken):
                continue  # it takes None, which is for the suite to judge
            distance = calls.distance(trial, {**drawn, **options}, {**drawn, **meaning})
            taken += [] if distance is None else [(distance, trial.open_side != opens, trial, variants)]
            if distance == 0:
                break
        if taken:
            break
    nearest = min(taken, key=lambda x: (x[0] != 0, x[1], x[0]), default=None)
    if nearest is None or (nearest[0] and not (calls.by_distance or is_clear(option, own[option]))):
        return None
    distance, _, trial, variants = nearest
    why: dict[str, str] = dict.fromkeys((option, *variants), UNCONFIRMED) if distance else {}
    limits = {} if drawn is call else {"lengths": "equal"}
    why |= dict.fromkeys(limits, f"with {own[option]} it raised an error where these are not equal")
    return trial, variants, why, limits


def widen(array: Any) -> Any:
    """Return values with two more features."""
    return np.concatenate([array, array[..., :2]], axis=-1)


def windows(
    named: Convention, given: dict[str, Any], opens: int | None
) -> Iterator[tuple[Convention, dict[str, Any]]]:
    """Yield the ways in which a function may take a window, each with a window to try."""
    for side in (None, -1, *([WIDE] if opens is None else [])):
        yield replace(named, window="sides", open_side=side), given
    for kind in NUMBERS:
        yield replace(named, window=kind, open_side=opens), {"window": (1, right_side(kind, 1))}


def text_of_no_call(name: str, calls: _Calls, named: Convention, dtypes: tuple[str, ...]) -> str:
    """Return a message about what was tried, what the last call raised, and what to write."""
    tried = ", ".join(f"{ours} = {own}" for ours, own in named.names.items())
    message = "" if calls.raised is None else str(calls.raised).strip() or "no message"
    raised = "" if not message else f"; the first call raised {type(calls.raised).__name__}: {message}"
    return (
        f"backend {name}: expected some call to compute {calls.operation}, got none: tried "
        f"{tried}, both layouts, grouped and equal heads, dtypes {', '.join(dtypes)}{raised}; "
        "if it takes only some calls, write what you know under [backend] in attnspec.toml, as in "
        'operation = "OPERATION", layout = "BHSD" or names = { ARGUMENT = "YOURS" }, and run this again. '
        "If its arrays have other axes, judge a wrapper with these arguments (spec/calls.md)"
    )


def limits_of_width(
    calls: _Calls, convention: Convention, call: Call, why: dict[str, str]
) -> dict[str, bool]:
    """Find out whether tokens and values must be as wide as the heads together."""
    if all(calls.agrees(convention, other) for other in calls_of_other_widths(calls.form, call)):
        return {}
    why["one_width"] = "with narrower tokens or values it raised an error or did not compute attention"
    return {"one_width": True}


def with_dtype_of_codes(calls: _Calls, convention: Convention, call: Call, why: dict[str, str]) -> Convention:
    """Find out whether it takes codes in one dtype of bytes alone."""
    codes = [name for name in call if name.endswith(CODES) and str(call[name].dtype) in (INT8, UINT8)]
    if not codes or convention.codes:
        return convention
    own, other = (INT8, UINT8) if str(call[codes[0]].dtype) == INT8 else (UINT8, INT8)
    if calls.agrees(convention, call | {x: np.maximum(call[x], 0).astype(other) for x in codes}) is not None:
        return convention
    why["codes"] = f"it raised an error with codes of {other}"
    return replace(convention, codes=own)


def with_int32(calls: _Calls, convention: Convention, call: Call, why: dict[str, str]) -> Convention:
    """Find out whether it takes lengths, tables and boundaries as int32 alone."""
    longer = {
        name: x.astype(np.int64)
        for name, x in call.items()
        if isinstance(x, np.ndarray) and x.dtype == np.int32
    }
    if not longer or convention.integers or calls.agrees(convention, call | longer) is not None:
        return convention
    why["integers"] = f"it raised an error with {' and '.join(longer)} of int64"
    return replace(convention, integers="int32")


def with_all_blocks(calls: _Calls, convention: Convention, call: Call, why: dict[str, str]) -> Convention:
    """Find out whether a mask of blocks must have an entry for each block of queries and keys."""
    blocks = {**option_values(call), **call}.get("block_mask")
    if blocks is None or convention.mask_axes or "block_mask" not in {**convention.names, **call}:
        return convention
    narrow, whole = call | {"block_mask": blocks[..., :1]}, replace(convention, mask_pairs=True)
    if calls.agrees(convention, narrow) is not None or not calls.agrees(whole, narrow):
        return convention
    why["mask_pairs"] = "with a mask of one block of keys it raised an error"
    return whole


def limits_of_arrays(
    calls: _Calls, convention: Convention, call: Call, why: dict[str, str]
) -> dict[str, list[str]]:
    """Find out whether it raises an error for packed rows after the last sequence, or for empty arrays."""
    if calls.by_distance or "block_table" in call:
        return {}
    if "key_starts" not in call:
        return _limits_of_empty_arrays(calls, convention, call, why)
    last = {name: x[..., -1:, :] for name, x in call.items() if name in ("query", "key", "value")}
    more = {name: np.concatenate([call[name], row], axis=-2) for name, row in last.items()}
    if len(more) < 3 or calls.agrees(convention, call | more) is not None:
        return {}
    why["requires"] = "it raised an error with rows after the last sequence"
    return {"requires": ["rows"]}


def _limits_of_empty_arrays(
    calls: _Calls, convention: Convention, call: Call, why: dict[str, str]
) -> dict[str, list[str]]:
    """Find out whether it raises an error without queries, keys or batch entries, if it is never wrong."""
    shown = []
    for letter in ("S", BATCH) if convention.one_query else ("L", "S", BATCH):
        axes = {name: calls.form.arguments[name].axis(letter) for name, x in call.items() if np.ndim(x)}
        there = {name: axis for name, axis in axes.items() if axis and np.ndim(call[name]) >= -axis}
        none = {name: np.take(call[name], [], axis) for name, axis in there.items()}
        if "key_lengths" in call and letter == "S":
            none["key_lengths"] = 0 * call["key_lengths"]
        if none and not {"key_block", "key_indices"} & call.keys():
            shown.append(calls.agrees(convention, call | none))
    if None not in shown or False in shown:
        return {}
    why["requires"] = "it raised an error without queries, keys or batch entries"
    return {"requires": ["nonempty"]}


def with_layout_of_lse(calls: _Calls, convention: Convention, call: Call, why: dict[str, str]) -> Convention:
    """Find out whether an lse that it always returns has heads after positions."""
    if "lse" not in convention.returns or convention.lse_layout or convention.one_query is True:
        return convention
    own = calls.results(convention, call | {"return_lse": True})
    right = own[0].shape[:-1] if own else ()
    if not own or own[1].shape == right or own[1].swapaxes(-2, -1).shape != right:
        return convention
    why["lse_layout"] = "the lse has heads after positions"
    return replace(convention, lse_layout="BSHD")


def precision_of(
    calls: _Calls, convention: Convention, call: Call, why: dict[str, str], dtypes: Iterable[str]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the variant of NUM-2 that a call shows; with an lse of float32 too, float64 is no dtype."""
    wide = cast(call, "float64")
    distances = [calls.distance(convention, wide, tolerance=tolerance) for tolerance in PRECISIONS]
    if distances[0] != 0 or not distances[1]:
        return {}, {}
    asks = "return_lse" in convention.names or "lse" in convention.returns
    own = calls.results(convention, wide | {"return_lse": True}) if asks else None
    if own and "float32" in [str(x.dtype) for x in own[1:]]:
        why["dtypes"] = f"{IN_FLOAT32}, and its lse is of float32"
        return {}, {"dtypes": [dtype for dtype in dtypes if dtype != "float64"]}
    why["NUM-2"] = IN_FLOAT32
    return {"NUM-2": "float32"}, {}


def with_slopes_of_form(
    calls: _Calls, convention: Convention, call: Call, parameters: Iterable[str], why: dict[str, str]
) -> Convention | None:
    """Name the parameter for slopes; None if there is none, or a bias."""
    takes = "bias" in calls.form.arguments and "bias" not in convention.names
    own = next((own for own in parameters if own.lower() in SLOPES and takes), "")
    if not own:
        return None
    convention = replace(convention, slopes=own)
    if not calls.agrees(convention, call | {"bias": linear_bias(call, from_end=convention.from_end)}):
        why["slopes"] = UNCONFIRMED
    return convention


def reads_on(calls: _Calls, convention: Convention, call: Mapping[str, Any]) -> bool:
    """Whether results depend on what is in memory past the end of an array."""
    distances = []
    for calls.beyond in (1.0, np.nan):
        distances.append(calls.distance(convention, call))
    return distances[0] != distances[1]


def infer_flags_of_form(
    calls: _Calls, convention: Convention, call: Call, ignored: Iterable[str], why: dict[str, str]
) -> tuple[Convention, dict[str, str], str]:
    """Take an unknown flag for causality if calls show it, and say what the others do."""
    dialect, effects = {}, {}
    for own, value in unknown_flags(calls.function, ignored).items():
        asked = value and not {"is_causal"} & {*convention.names, *convention.always}
        tried = trials_of_form(convention, "is_causal", {"is_causal": own}, call, None) if asked else ()
        causal = (x for x in tried if calls.distance(x[0], call | x[1], call | x[2]) == 0)
        if taken := next(causal, None):
            convention, dialect = taken[0], taken[3]
            why["is_causal"] = f"{BY_CALLS}the results are those of a causal mask"
            continue
        plain = calls.distance(convention, call)
        with with_flag(calls, own, value=value):
            other = calls.distance(convention, call)
        effects[f"{own} = {value}"] = RAISES if other is None else SAME if other == plain else CHANGES
    return convention, dialect, sentence(effects)


#: Options that need each other.
PARTNERS = {"new_key": "new_value", "block_counts": "block_indices"}
PARTNERS |= {other: name for name, other in PARTNERS.items()}

"""Small calls of the operations that are stacks of forms, for `attnspec init`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Operation
from attnspec.backends.stored_codes import nearest_codes
from attnspec.backends.user.scales import FLAT, SCALES, codes_of, shape_of
from attnspec.operations.letters import BATCH, LETTERS

Call = dict[str, Any]
#: The sizes of the call by letter, and those of packed rows.
QUERIES, KEYS = 3, 8
_SIZES = dict.fromkeys(LETTERS, 4) | {"L": QUERIES, "S": KEYS, "D": 16, "Dv": 16, "Dr": 8, "Dc": 12}
_SIZES |= {"P": 3, "K": 16, "T": 2, BATCH: 2, **dict.fromkeys(("E", "E'", "F"), 64)}  # one width, Hq*D
_OF_ROWS = {"L": 5, "S": 12}


#: So many packed queries may have as many keys.
_MOST = 1000


def small_call(operation: str, key_heads: int, *, full: bool = False, encoding: str = "") -> Call:
    """Draw a call of a form, whose pages may all be full, with codes of an encoding."""
    random, form = np.random.default_rng(0), OPERATIONS[operation]
    sizes = _SIZES | {"Hkv": key_heads} | (_OF_ROWS if "packed" in form.layers else {})
    products = ("H*D", "Hq*D", "Hkv*D", "Hkv*Dv", "Hq*Dv")
    sizes |= {both: sizes[heads] * sizes[depth] for both in products for heads, depth in [both.split("*")]}
    call: dict[str, Any] = {}
    for name in form.arrays:
        argument = form.arguments[name]
        shape = [sizes[letter] for letter in argument.shape]
        codes = nearest_codes(random.integers(-3, 4, shape), encoding or "int8")
        call[name] = codes if argument.numbers == "integer" else random.normal(0, 0.7, shape).astype("f4")
    drawn = {
        "query_starts": np.array([0, 2, 5], np.int32),
        "key_starts": np.array([0, 4, 12], np.int32),  # other differences than between the longest ones
        "block_table": np.array([[2, 0], [1, 1]], np.int32),
        "key_lengths": np.array([32, 16] if full else [20, 9], np.int32),
    }
    call |= {name: x for name, x in drawn.items() if name in form.arguments and form.arguments[name].required}
    call |= {"encoding": encoding} if encoding else {}
    call |= {"query_block": 1 if full else 2, "key_block": 3} if "key_block" in form.arguments else {}
    call |= {"heads": _SIZES["Hq"]} if "heads" in form.arguments else {}
    call |= {"key_heads": key_heads} if key_heads < _SIZES["Hq"] and "key_heads" in form.arguments else {}
    if "key_indices" in form.arguments:
        call["key_indices"] = np.argsort(random.random((2, key_heads, QUERIES, KEYS)))[..., :4].astype(
            np.int32
        )
    return call


def calls_of_other_widths(form: Operation, call: Call) -> list[Call]:
    """Return a call of tokens, and one of values, of half the width; none where no output is projected."""
    calls = []
    for letters in (("E", "E'"), ("Hkv*Dv", "Hq*Dv")) if "output_weight" in form.arguments else ():
        narrow = dict(call)
        for name in form.arrays:
            for axis, letter in enumerate(form.arguments[name].shape):
                half = range(narrow[name].shape[axis] // (2 if letter in letters else 1))
                narrow[name] = np.take(narrow[name], half, axis)
        calls.append(narrow)
    return calls


def square_call(call: Call) -> Call:
    """Return a call with as many queries as keys, of rows with one length; empty for another call."""
    if not {"query", "key", "value"} <= call.keys() or "query_starts" in call:
        return {}
    keys, random = call["key"].shape[-2], np.random.default_rng(2)
    shape = (*call["query"].shape[:-2], keys, call["query"].shape[-1])
    square = call | {"query": random.normal(0, 0.7, shape).astype(call["query"].dtype)}
    return square | {name: x for name, x in _blocks_of(square).items() if name in call}


def shares_boundaries(names: Mapping[str, str]) -> bool:
    """Whether one parameter is the boundaries of queries and of keys."""
    return names.get("query_starts", "") == names.get("key_starts")


def with_starts_of_queries(form: Operation, call: Mapping[str, Any]) -> Call:
    """Give packed keys the boundaries of the queries: keys come again where they are few, or are left out.

    Calls of many queries, and those without keys or with numbers that are not finite, stay as they are.
    """
    keys = next((name for name in call if form.arguments[name].axis("S") == -2), "")
    whole = "key_starts" in call and keys and call[keys].shape[-2] > 0 and call["query"].shape[-2] <= _MOST
    if not whole or not all(np.isfinite(call[name].astype(float)).all() for name in ("query", keys)):
        return {**call}
    rows = np.zeros(call["query"].shape[-2], np.int64)
    of_queries, of_keys = (np.asarray(call[f"{what}_starts"], np.int64) for what in ("query", "key"))
    for start, stop, first, last in zip(of_queries, of_queries[1:], of_keys, of_keys[1:], strict=False):
        rows[start:stop] = first + np.arange(stop - start) % max(last - first, 1)
    count = call[keys].shape[-2]
    axes = {name: form.arguments[name].axis("S") for name in call}
    own = {
        name: np.take(call[name], np.minimum(rows, count - 1), axis)
        for name, axis in axes.items()
        if axis is not None and np.ndim(call[name]) >= -axis and call[name].shape[axis] == count
    }
    if (lengths := call.get("key_lengths")) is not None:
        most = np.diff(of_queries)
        own["key_lengths"] = int(min(lengths, *most)) if np.ndim(lengths) == 0 else np.minimum(lengths, most)
    return {**call, **own, "key_starts": call["query_starts"]}


def share_by_batch(call: Call) -> Call:
    """Return a call whose mask of blocks is that of the first batch entry in each."""
    blocks = call.get("block_mask")
    return call if blocks is None else call | {"block_mask": np.repeat(blocks[:1], len(blocks), axis=0)}


def option_values(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each option that changes the result."""
    heads = call["key_pages"].shape[-3] if "key_pages" in call else 0
    new = np.linspace(-1, 1, 32 * heads, dtype="f4").reshape(2, heads, 1, 16)
    return {
        "scale": 0.3,
        "softcap": 1.5,
        "window": (None, 0),  # which shows how a side is opened, and where the queries are
        "sinks": np.array([0.5, -0.5, 1.0, 0.0], np.float32),
        "is_causal": True,
        "return_lse": True,
        "query_lengths": np.array([1, 3], np.int32),
        "key_lengths": np.array([3, 8], np.int32),
        "new_key": new,
        "new_value": 2 - new,
        **_blocks_of(call),
        **scales_of(call, "head"),
        **_zero_points_of(call),
    }


def _blocks_of(call: Mapping[str, Any]) -> Call:
    """Return a mask of blocks, and lists of them, for a call whose sequences do not lie in one row."""
    if "key_block" not in call or "query_starts" in call or "key" not in call:
        return {}
    rows, columns = -(-call["query"].shape[-2] // call["query_block"]), -(-KEYS // call["key_block"])
    order = np.random.default_rng(1).random((2, 4, rows, columns))
    order[..., 0] = 0  # a causal call has no empty row
    lists = np.argsort(order).astype(np.int32)
    counts = np.full((2, 4, rows), columns - 1, np.int32)
    return {"block_mask": lists != 1, "block_counts": counts, "block_indices": lists}


def scales_of(call: Mapping[str, Any], granularity: str) -> Call:
    """Return scales of a granularity for the codes of a call, all different."""
    scales = {}
    for place, base in enumerate(_bases_of_codes(call)):
        shape = shape_of(FLAT.get(granularity, granularity), call[codes_of(base + SCALES, call)].shape)
        scales[base + SCALES] = (0.5 + place + np.arange(np.prod(shape)) % 5 / 4).reshape(shape).astype("f4")
    return scales


def _zero_points_of(call: Mapping[str, Any]) -> Call:
    """Return zero points of the codes of a call: one for each head. Only codes of `int8` have them."""
    points: Call = {}
    if call.get("encoding", "int8") != "int8":
        return points
    for place, base in enumerate(_bases_of_codes(call)):
        shape = shape_of("head", call[codes_of(base + SCALES, call)].shape)
        numbers = (np.arange(np.prod(shape)) + place) % 3 - 1
        points[f"{base}_zero_points"] = numbers.reshape(shape).astype(np.int8)
    return points


def _bases_of_codes(call: Mapping[str, Any]) -> list[str]:
    """Name what the codes of a call are, such as `key`."""
    arrays = {name: x.dtype for name, x in call.items() if isinstance(x, np.ndarray)}
    codes = [name for name, dtype in arrays.items() if dtype.itemsize == 1 and dtype.kind != "b"]
    return [name.rpartition("_")[0] for name in codes if not name.endswith("_zero_points")]


def cast(call: Mapping[str, Any], dtype: str) -> Call:
    """Return a call whose floating-point arrays have a dtype."""
    real = {name for name, x in call.items() if isinstance(x, np.ndarray) and "float" in str(x.dtype)}
    return {name: x.astype(dtype) if name in real else x for name, x in call.items()}

"""The forms of attention for the exact oracle: packed, paged, sparse, of codes, dropout by seed."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.attention import evaluate_attention
from attnspec.reference.exact.balls import OracleError, Settled, nearest
from attnspec.reference.exact.gradients import evaluate_gradients


def evaluate_packed_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of a call, as those of attention within segments at given positions (PACK-7)."""
    if variant == "uniform":
        raise OracleError("variant: expected one that keeps a row within its sequence, got 'uniform'")
    inner = None if variant == "bottom-right" else variant
    return evaluate_gradients(_in_segments(arguments, at_end=variant == "bottom-right"), inner, dtype)


def _in_segments(arguments: Mapping[str, Any], *, at_end: bool) -> dict[str, Any]:
    """Rewrite a packed call: each sequence, and each segment of it, is a segment of the whole row."""
    plain = {name: x for name, x in arguments.items() if not name.endswith(("_starts", "_lengths"))}
    numbers: dict[tuple[int, int], int] = {}
    places = {}
    for side in ("query", "key"):
        rows = np.shape(arguments[side])[-2]
        starts = np.asarray(arguments[f"{side}_starts"])
        own = np.searchsorted(starts, np.arange(rows), side="right") - 1
        places[side] = np.arange(rows) - starts[own], own
        given = np.asarray(arguments.get(f"{side}_segment_ids", np.zeros(rows, int)))
        keys = [(g, int(segment)) for g, segment in zip(own.tolist(), given, strict=True)]
        plain[f"{side}_segment_ids"] = np.array([numbers.setdefault(key, len(numbers)) for key in keys], int)
    (row, of_row), (column, of_column) = places["query"], places["key"]
    count = len(arguments["query_starts"]) - 1
    plain.setdefault("key_positions", column)
    if "query_positions" not in plain:
        offset = np.asarray(plain.pop("query_offset", 0))
        if at_end and offset.ndim == 0 and not offset:
            offset = np.diff(arguments["key_starts"]) - np.diff(arguments["query_starts"])
        plain["query_positions"] = row + np.append(np.broadcast_to(offset, (count,)), 0)[of_row]
    used = of_row < count
    plain["mask"] = np.asarray(plain.get("mask", True)) & used[:, None]
    for side, place, own in (("query", row, of_row), ("key", column, of_column)):
        if f"{side}_lengths" in arguments:
            length = np.append(np.broadcast_to(arguments[f"{side}_lengths"], (count,)), 0)[own]
            below = place < length
            plain["mask"] = plain["mask"] & (below[:, None] if side == "query" else below)
    if "d_lse" in plain:  # rows of no sequence have no sink either (PACK-3)
        plain["d_lse"] = np.where(used, plain["d_lse"], 0)
    return plain


def merge_proofs(values: Any, proofs: list[Settled]) -> Settled:
    """Return values with the widest of the radii that prove them."""
    radii = [proof.radius for proof in proofs if proof.radius is not None]
    bits = max((proof.bits for proof in proofs), default=FORMATS["float64"].digits)
    return Settled(values, bits, max(radii, default=None))


def evaluate_sharded(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute the outputs of a call whose arrays are those of all shards together (SHARD-1)."""
    return evaluate_attention(_whole_of_shards(arguments), variant, dtype)


def evaluate_sharded_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of such a call (SHARD-10)."""
    return evaluate_gradients(_whole_of_shards(arguments), variant, dtype)


def _whole_of_shards(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in arguments.items() if not name.endswith("_shards")}


_OWN_SPARSITY = ("query_block", "key_block", "block_mask", "block_counts", "block_indices", "key_indices")
_Allows = Callable[[tuple[int, ...], int, int], bool]


def evaluate_sparse_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of a call with blocks or lists."""
    return evaluate_gradients(_with_mask(arguments), variant, dtype)


def _with_mask(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call of attention that the call stands for (SPARSE-1, SPARSE-6)."""
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    return with_mask(arguments, (*query.shape[:-1], key.shape[-2]), key.shape[:-2])


def with_mask(
    arguments: Mapping[str, Any], shape: tuple[int, ...], key_outer: tuple[int, ...]
) -> dict[str, Any]:
    """Replace blocks or lists by a mask of the shape of the scores. A list belongs to a key head."""
    by_list = "key_indices" in arguments
    allows = _by_list(arguments, shape, key_outer) if by_list else _by_blocks(arguments, shape)
    mask = np.array(np.broadcast_to(arguments.get("mask", True), shape))
    for *outer, i, j in np.ndindex(*shape):
        if not allows(tuple(outer), i, j):
            mask[(*outer, i, j)] = False
    return {name: thing for name, thing in arguments.items() if name not in _OWN_SPARSITY} | {"mask": mask}


def _by_blocks(arguments: Mapping[str, Any], shape: tuple[int, ...]) -> _Allows:
    rows, columns = arguments["query_block"], arguments["key_block"]
    *outer, queries, keys = shape
    blocks = (*outer, (queries + rows - 1) // rows, (keys + columns - 1) // columns)
    mask = np.broadcast_to(arguments.get("block_mask", True), blocks)
    indices = arguments.get("block_indices")
    if indices is not None:
        counts = np.broadcast_to(arguments["block_counts"], blocks[:-1])
        indices = np.broadcast_to(indices, (*blocks[:-1], np.shape(indices)[-1]))

    def allows(place: tuple[int, ...], i: int, j: int) -> bool:
        row, column = i // rows, j // columns
        if not mask[(*place, row, column)]:
            return False
        return indices is None or column in indices[(*place, row)][: counts[(*place, row)]]

    return allows


def _by_list(arguments: Mapping[str, Any], shape: tuple[int, ...], key_outer: tuple[int, ...]) -> _Allows:
    indices = np.asarray(arguments["key_indices"])
    indices = np.broadcast_to(indices, (*key_outer, shape[-2], indices.shape[-1]))
    group = shape[-3] // max(key_outer[-1], 1) if key_outer else 1  # without heads, too

    def allows(place: tuple[int, ...], i: int, j: int) -> bool:
        head = (*place[:-1], place[-1] // group) if place else ()
        return bool((indices[(*head, i)] == j).any())

    return allows


def evaluate_seeded(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute output and lse of a call."""
    results = evaluate_attention(_plain(arguments), variant, dtype)
    return {name: results[name] for name in ("output", "lse")}


def evaluate_seeded_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of a call."""
    return evaluate_gradients(_plain(arguments), variant, dtype)


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call of attention that keeps every weight, or none."""
    p = arguments["dropout_p"]
    if p not in (0, 1):
        raise OracleError(f"dropout_p: expected 0 or 1, which leave nothing to chance, got {p!r}")
    plain = {name: thing for name, thing in arguments.items() if name not in ("dropout_p", "seed")}
    return plain if p == 0 else plain | {"dropout_mask": np.zeros((1, 1), dtype=bool)}


#: Bits of the exponent and of the fraction, and the bias of the exponent.
_FORMATS = {
    "e4m3fn": (4, 3, 7),
    "e5m2": (5, 2, 15),
    "e4m3fnuz": (4, 3, 8),
    "e5m2fnuz": (5, 2, 16),
    "e2m1fn": (2, 1, 1),
}


def _number(code: int, encoding: str) -> Fraction | float:
    """Return the number of a code, as a float if it is infinite or NaN."""
    if encoding == "int8":
        return Fraction(code)
    if encoding == "e8m0fnu":
        return nan if code % 256 == 255 else Fraction(2) ** (code % 256 - 127)
    width, digits, bias = _FORMATS[encoding]
    size = 1 + width + digits
    bits = f"{code % 2**size:0{size}b}"
    sign = -1 if bits[0] == "1" else 1
    exponent, fraction = int(bits[1 : 1 + width], 2), Fraction(int(bits[1 + width :], 2), 2**digits)
    if bits[1:] == "1111111" if encoding == "e4m3fn" else encoding.endswith("fnuz") and bits == "10000000":
        return nan
    if encoding == "e5m2" and "0" not in bits[1 : 1 + width]:
        return sign * inf if fraction == 0 else nan
    if exponent == 0:
        return sign * fraction * Fraction(2) ** (1 - bias)
    return sign * (1 + fraction) * Fraction(2) ** (exponent - bias)


def _entry(array: Any, place: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Return the entry for a place of the codes, whose axis is divided into blocks of equal size."""
    own = np.shape(array)
    index = []
    for size, whole, i in zip(reversed(own), reversed(shape), reversed(place), strict=False):
        index.append(i * size // whole)
    return np.asarray(array)[tuple(reversed(index))]


def _product(number: Fraction | float, shift: int, scale: float) -> Fraction | float:
    if isinstance(number, float) or not isfinite(scale):
        return (float(number) - shift) * scale
    return (number - shift) * Fraction(scale)


def _decode(arguments: Mapping[str, Any], of: str) -> list[Fraction | float]:
    codes = np.asarray(arguments[f"{of}codes"])
    scales = np.asarray(arguments.get(f"{of}scales", 1.0)).astype(np.float64)
    shift = arguments.get(f"{of}zero_points", 0)
    encoding = arguments.get("encoding", "int8")
    return [
        _product(
            _number(int(codes[place]), encoding),
            int(_entry(shift, place, codes.shape)),
            float(_entry(scales, place, codes.shape)),
        )
        for place in np.ndindex(*codes.shape)
    ]


def _round(numbers: list[Fraction | float], shape: tuple[int, ...], dtype: str) -> Settled:
    values = [x if isinstance(x, float) else nearest(x, dtype) for x in numbers]
    return Settled(np.array(values, dtype=np.float64).reshape(shape), 53, None)


def dequantize(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    """Decode every code, and round once."""
    shape = np.shape(arguments["codes"])
    return {"dequantized": _round(_decode(arguments, ""), shape, dtype)}


def dequantize_blocks(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    """Unpack every block, and round once."""
    scales, packed = np.asarray(arguments["scales"]), np.asarray(arguments["packed"])
    nibbles = arguments.get("blocks", "q8_0") == "q4_0"
    numbers: list[Fraction | float] = []
    for *place, k in np.ndindex(*scales.shape, 32):
        byte = int(packed[(*place, k % 16 if nibbles else k)]) % 256
        if nibbles:
            number = int(f"{byte:08b}"[4:] if k < 16 else f"{byte:08b}"[:4], 2) - 8
        else:
            number = int.from_bytes(bytes([byte]), signed=True)
        numbers.append(_product(Fraction(number), 0, float(scales[tuple(place)])))
    shape = (*scales.shape[:-1], scales.shape[-1] * 32)
    return {"dequantized": _round(numbers, shape, dtype)}


def whole(arguments: Mapping[str, Any], of: str) -> NDArray[np.float64]:
    """Decode into float64, and refuse what it does not hold."""
    numbers = _decode(arguments, of)
    for number in numbers:
        if isinstance(number, Fraction) and Fraction(float(number)) != number:
            raise OracleError(f"{of}scales: expected products that float64 holds, got others")
    return np.array([float(x) for x in numbers]).reshape(np.shape(arguments[f"{of}codes"]))


def low_precision_attention(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Attend with what is decoded of queries, keys and values."""
    plain = {name: x for name, x in arguments.items() if not name.endswith(("_codes", "_scales"))}
    plain |= {name: whole(arguments, f"{name}_") for name in ("query", "key", "value")}
    return evaluate_attention(plain, variant, dtype)

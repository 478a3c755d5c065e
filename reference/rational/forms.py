"""The forms of attention for the second oracle: packed, paged, sparse, latent, of codes, dropout by seed."""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.operations import OPERATIONS
from attnspec.reference.rational.attention import attention, head, indices, maximum
from attnspec.reference.rational.gradients import attention_vjp, gradient_variants, heads_of, run
from attnspec.reference.rational.numbers import Matrix, combine, dot, exact, to_float
from attnspec.reference.rational.scores import sources
from attnspec.reference.rational.tape import Head

Arguments = Mapping[str, Any]
Dialect = Mapping[str, str]
Arrays = dict[str, NDArray[np.float64]]
#: The arguments that have an axis of queries, and those that have one of keys.
_SIDES = {"query": ("query", "d_output", "d_lse"), "key": ("key", "value")}
_PAIRS = ("mask", "bias", "dropout_mask")


@dataclass(frozen=True)
class _Sequence:
    """One sequence: its rows of queries and of keys, and its offset."""

    number: int
    rows: list[int]
    keys: list[int]
    offset: int

    def call_of(self, arguments: Arguments) -> dict[str, Any]:
        """Return the call of attention for this sequence alone."""
        whole = {name: x for name, x in arguments.items() if not name.endswith("_starts") and x is not None}
        for side, places in (("query", self.rows), ("key", self.keys)):
            for name in _SIDES[side]:
                if name in whole:
                    whole[name] = np.asarray(whole[name]).take(np.array(places, dtype=int), axis=1)
            for name in (f"{side}_segment_ids", f"{side}_positions"):
                if name in whole:
                    whole[name] = np.asarray(whole[name])[places]
            lengths = whole.get(f"{side}_lengths")
            if lengths is not None:
                own = np.asarray(lengths)
                whole[f"{side}_lengths"] = min(int(own if own.ndim == 0 else own[self.number]), len(places))
            for name in _PAIRS:
                axis = -2 if side == "query" else -1
                if np.ndim(whole.get(name, 0)) >= -axis and np.shape(whole[name])[axis] > 1:
                    whole[name] = np.asarray(whole[name]).take(np.array(places, dtype=int), axis=axis)
        return whole if "query_positions" in whole else {**whole, "query_offset": self.offset}


def packed_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients of all arrays, with one tape for each head of each sequence."""
    shown = gradient_variants(arguments, _within(dialect))
    every = ("query", "key", "value", "bias", "sinks")
    names = [name for name in every if arguments.get(name) is not None]
    arrays = {name: np.asarray(arguments[name]).astype(np.float64) for name in names}
    numbers = {name: np.arange(array.size).reshape(array.shape) for name, array in arrays.items()}
    heads: list[Head] = []
    for sequence in _sequences(arguments, dialect):
        own = sequence.call_of(arguments)
        cut = {name: np.asarray(own[name]).astype(np.float64) for name in names}
        shape = (cut["query"].shape[0], len(sequence.rows), len(sequence.keys))
        # The numbers of the whole row that the numbers of the sequence are.
        placed = sequence.call_of(numbers)
        for each in heads_of(own, cut, shown, shape):
            places = {name: placed[name].ravel()[its] for name, its in each.places.items()}
            heads.append(replace(each, places=places))
    return run(arguments, shown, arrays, heads)


def _sequences(arguments: Arguments, dialect: Dialect) -> list[_Sequence]:
    """Assign each row of queries and of keys to the sequence that begins last at or before it."""
    count = len(arguments["query_starts"]) - 1
    rows: dict[str, list[list[int]]] = {}
    for side in _SIDES:
        starts = [int(x) for x in arguments[f"{side}_starts"]]
        rows[side] = [[] for _ in range(count)]
        for row in range(np.shape(arguments[side])[1]):
            g = bisect_right(starts, row) - 1
            if g < count:
                rows[side][g].append(row)
    given = arguments.get("query_offset")
    offsets = [0] * count if given is None else np.broadcast_to(given, (count,)).tolist()
    if dialect.get("PACK-5") == "bottom-right" and np.ndim(0 if given is None else given) == 0 and not given:
        offsets = [len(rows["key"][g]) - len(rows["query"][g]) for g in range(count)]
    return [_Sequence(g, rows["query"][g], rows["key"][g], offsets[g]) for g in range(count)]


def _within(dialect: Dialect) -> dict[str, str]:
    """Return the variants of attention within a sequence. PACK-5 alone aligns it."""
    return {rule: variant for rule, variant in dialect.items() if rule not in ("PACK-5", "MASK-3")}


Index = tuple[int, ...]


def block_sparse_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients of a call with blocks."""
    return attention_vjp(mask_pairs(arguments, pairs_of_blocks(arguments)), dialect)


def listed_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients of a call with lists of keys."""
    return attention_vjp(mask_pairs(arguments, pairs_of_lists(arguments)), dialect)


def mask_pairs(arguments: Arguments, pairs: Iterator[Index]) -> dict[str, Any]:
    """Replace the arguments of a sparse call by a mask that is True for some pairs only."""
    shape = _shape(arguments)
    named = np.zeros(shape, dtype=bool)
    for pair in pairs:
        named[pair] = True
    given = arguments.get("mask")
    kept = {
        name: x for name, x in arguments.items() if not name.startswith("block_") and name != "key_indices"
    }
    for name in ("query_block", "key_block"):
        kept.pop(name, None)
    return kept | {"mask": named if given is None else named & np.asarray(given)}


def _shape(arguments: Arguments) -> Index:
    return (*np.shape(arguments["query"])[:-1], np.shape(arguments["key"])[-2])


def pairs_of_blocks(arguments: Arguments) -> Iterator[Index]:
    """Yield the place of each pair whose block is allowed by the mask of blocks and by the lists."""
    *outer, queries, keys = _shape(arguments)
    height, width = arguments["query_block"], arguments["key_block"]
    upper, left = range(0, queries, height), range(0, keys, width)
    blocks = (*outer, len(upper), len(left))
    shown = np.ones(blocks, dtype=bool)
    if arguments.get("block_mask") is not None:
        shown &= np.asarray(arguments["block_mask"])
    if arguments.get("block_indices") is not None:
        indices = np.asarray(arguments["block_indices"])
        indices = np.broadcast_to(indices, (*blocks[:-1], indices.shape[-1]))
        counts = np.broadcast_to(arguments["block_counts"], blocks[:-1])
        for place in itertools.product(*map(range, blocks[:-1])):
            listed = {int(index) for index in indices[place].tolist()[: int(counts[place])]}
            shown[place] &= np.array([block in listed for block in range(len(left))], dtype=bool)
    for *heads, row, column in zip(*(axis.tolist() for axis in np.nonzero(shown)), strict=True):
        for i in range(upper[row], min(upper[row] + height, queries)):
            for j in range(left[column], min(left[column] + width, keys)):
                yield (*heads, i, j)


def pairs_of_lists(arguments: Arguments) -> Iterator[Index]:
    """Yield the place of each query and key that is listed for it, for each query head of the list's head."""
    *outer, queries, _ = _shape(arguments)
    key_outer = np.shape(arguments["key"])[:-2]
    indices = np.asarray(arguments["key_indices"])
    indices = np.broadcast_to(indices, (*key_outer, queries, indices.shape[-1]))
    for (*place, i, _), j in np.ndenumerate(indices):
        if j < 0:
            continue
        if not place:
            yield (i, int(j))
            continue
        group = outer[-1] // key_outer[-1]
        for h in range(place[-1] * group, (place[-1] + 1) * group):
            yield (*place[:-1], h, i, int(j))


def attend_latent(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Multiply queries by the key weight, attend over the latent, and project what is attended to."""
    query, latent = np.asarray(arguments["query"]), np.asarray(arguments["latent"])
    rotary, weight = np.asarray(arguments["query_rotary"]), np.asarray(arguments["value_weight"])
    shape = (*query.shape[:-1], latent.shape[-2])
    result = {"output": np.zeros((*query.shape[:-1], weight.shape[-1])), "lse": np.zeros(shape[:-1])}
    result |= {"weights": np.zeros(shape), "max": np.zeros(shape[:-1])}
    _check_finite(arguments, dialect, shape)
    depth = query.shape[-1] + rotary.shape[-1]
    given = {name: x for name, x in arguments.items() if name in OPERATIONS["attention"].options}
    for index in indices(shape):
        *batch, h = index
        shared = exact(latent[tuple(batch)])
        absorbed = _product(exact(query[index]), exact(np.asarray(arguments["key_weight"])[h].T))
        q = _join(absorbed, exact(rotary[index]))
        key = _join(shared, exact(np.asarray(arguments["key_rotary"])[tuple(batch)]))
        q = replace(q, depth=depth)  # the scale is that of the other form (LATENT-2)
        scores, rows = head(q, key, shared, given, dialect, shape, index)
        columns = exact(weight[h])
        for i, row in enumerate(rows):
            result["lse"][(*index, i)] = to_float(row.lse)
            result["weights"][(*index, i)] = row.weights
            result["max"][(*index, i)] = maximum(scores, given, dialect, shape, (*index, i))
            result["output"][(*index, i)] = [
                to_float(combine(row.output, column, columns.exponent, 0.0))
                for column in zip(*columns.rows, strict=True)
            ]
    return result


def _check_finite(arguments: Arguments, dialect: Dialect, shape: Index) -> None:
    """Refuse numbers whose result depends on the form (LATENT-1)."""
    for name in ("key_weight", "value_weight"):
        if not np.isfinite(arguments[name]).all():
            raise ValueError(f"{name}: expected finite numbers, got others [unspecified]")
    # Decoded latent vectors are fractions, which `numpy.isinf` does not take.
    query, latent = ((np.abs(arguments[name]) == math.inf).any(axis=-1) for name in ("query", "latent"))
    for index in indices(shape) if query.any() or latent.any() else ():
        allowed = sources(arguments, dialect, shape, index)
        for i, j in itertools.product(*map(range, shape[-2:])):
            if (query[(*index, i)] or latent[(*index[:-1], j)]) and allowed.allow(i, j):
                raise ValueError(
                    f"latent: expected no infinity for query {i} and key {j}, got one [unspecified]"
                )


def _product(left: Matrix, right: Matrix) -> Matrix:
    columns = list(zip(*right.rows, strict=True))
    rows = [[dot(row, column, finite=left.finite) for column in columns] for row in left.rows]
    return Matrix(rows, right.depth, left.exponent + right.exponent, left.finite)


def _join(left: Matrix, right: Matrix) -> Matrix:
    """Put two matrices side by side, with the finer unit of the two."""
    exponent = max(left.exponent, right.exponent)
    one, other = 1 << (exponent - left.exponent), 1 << (exponent - right.exponent)
    rows = [
        [one * x for x in own] + [other * x for x in beside]
        for own, beside in zip(left.rows, right.rows, strict=True)
    ]
    return Matrix(rows, left.depth + right.depth, exponent, left.finite and right.finite)


def sharded_attention(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Attend over the rows of all ranks at once."""
    return attention(_join_ranks(arguments), dialect)


def sharded_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients over the rows of all ranks at once."""
    return attention_vjp(_join_ranks(arguments), dialect)


def _join_ranks(arguments: Arguments) -> dict[str, Any]:
    call = dict(arguments)
    for axis in ("query", "key", "head"):
        call.pop(f"{axis}_shards", None)
    return call


def seeded_dropout_attention(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute output and lse of a call."""
    results = attention(_without_chance(arguments), dialect)
    return {"output": results["output"], "lse": results["lse"]}


def seeded_dropout_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients of a call."""
    return attention_vjp(_without_chance(arguments), dialect)


def _without_chance(arguments: Arguments) -> dict[str, Any]:
    call = dict(arguments)
    del call["seed"]
    chance = call.pop("dropout_p")
    if 0 < chance < 1:
        raise ValueError(f"dropout_p: expected 0 or 1, because other results are not defined, got {chance}")
    pairs = (np.shape(call["query"])[-2], np.shape(call["key"])[-2])
    call["dropout_mask"] = np.full(pairs, chance < 1)
    return call


#: The smallest positive number, how many numbers lie between two powers of 2, and how many codes are numbers.
_LADDERS = {
    "e4m3fn": (Fraction(1, 512), 8, 127),
    "e5m2": (Fraction(1, 65536), 4, 124),
    "e4m3fnuz": (Fraction(1, 1024), 8, 128),
    "e5m2fnuz": (Fraction(1, 131072), 4, 128),
    "e2m1fn": (Fraction(1, 2), 2, 8),
}


@cache
def _ladder(encoding: str) -> tuple[Any, ...]:
    """List the numbers of all codes, as fractions where they are finite and not 0."""
    if encoding == "e8m0fnu":
        return (*(Fraction(2) ** power for power in range(-127, 128)), math.nan)
    step, count, finite = _LADDERS[encoding]
    numbers: list[Any] = [Fraction(0)]
    while len(numbers) < finite:
        if len(numbers) > 2 * count and len(numbers) % count == 1:
            step *= 2
        numbers.append(numbers[-1] + step)
    numbers += [math.inf] * (encoding == "e5m2")
    numbers += [math.nan] * (128 - len(numbers)) if encoding != "e2m1fn" else []
    negative = [-number for number in numbers]
    if encoding.endswith("uz"):  # one zero only
        negative[0] = math.nan
    return (*numbers, *negative)


def numbers_of_codes(arguments: Arguments, of: str) -> NDArray[Any]:
    """Decode every code into a fraction or a float."""
    codes = np.asarray(arguments[f"{of}codes"])
    encoding = arguments.get("encoding") or "int8"
    ladder = None if encoding == "int8" else _ladder(encoding)
    numbers = np.empty(codes.shape, dtype=object)
    for place, code in np.ndenumerate(codes):
        numbers[place] = Fraction(int(code)) if ladder is None else ladder[int(code) % len(ladder)]
    for name, apply in (("zero_points", _less), ("scales", _times)):
        other = arguments.get(f"{of}{name}")
        if other is not None:
            whole = _repeat(np.asarray(other), codes.shape)
            for place in np.ndindex(*codes.shape):
                numbers[place] = apply(numbers[place], whole[place])
    return numbers


def _repeat(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    for axis, size in enumerate(shape):
        if array.shape[axis] > 1 or size == 0:
            array = np.repeat(array, size // max(array.shape[axis], 1), axis=axis)
    return np.broadcast_to(array, shape)


def _less(number: Any, other: Any) -> Any:
    return number - int(other)


def _times(number: Any, other: Any) -> Any:
    scale = float(other)
    return number * (Fraction(scale) if math.isfinite(scale) and isinstance(number, Fraction) else scale)


def floats(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Round fractions to float64."""
    values = [to_float(x) if isinstance(x, Fraction) else x for x in numbers.reshape(-1)]
    return np.array(values, dtype=np.float64).reshape(numbers.shape)


def dequantize(arguments: Arguments) -> Arrays:
    """Decode every code."""
    return {"dequantized": floats(numbers_of_codes(arguments, ""))}


def dequantize_blocks(arguments: Arguments) -> Arrays:
    """Unpack every block."""
    scales, packed = np.asarray(arguments["scales"]), np.asarray(arguments["packed"])
    results = np.empty((*scales.shape, 32), dtype=object)
    for place, factor in np.ndenumerate(scales):
        block = [int(byte) & 255 for byte in packed[place]]
        if (arguments.get("blocks") or "q8_0") == "q8_0":
            numbers = [byte - 2 * (byte & 128) for byte in block]
        else:
            numbers = [(byte & 15) - 8 for byte in block] + [(byte >> 4) - 8 for byte in block]
        results[place] = [_times(Fraction(number), factor) for number in numbers]
    return {"dequantized": floats(results.reshape(*scales.shape[:-1], scales.shape[-1] * 32))}


def low_precision_attention(arguments: Arguments, dialect: Mapping[str, str]) -> Arrays:
    """Attend with what is decoded of queries, keys and values."""
    decoded = {name: numbers_of_codes(arguments, f"{name}_") for name in ("query", "key", "value")}
    return attention({**arguments, **decoded}, dialect)

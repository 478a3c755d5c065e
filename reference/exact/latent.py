"""Latent attention and its gradients for the exact oracle. Projected keys and values are not rounded."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat
from numpy.typing import NDArray

from attnspec.reference.exact.attention import attend, head_of
from attnspec.reference.exact.backward import Balls, Part, balls_of, clean, factor, part_of
from attnspec.reference.exact.balls import Settled, settle
from attnspec.reference.exact.gradients import put_nan, settle_gradients
from attnspec.reference.exact.gradients_of_companions import exactly
from attnspec.reference.exact.head import matrix, rational
from attnspec.reference.exact.non_finite import special_of

Index = tuple[int, ...]


def attend_latent(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Attend over projected keys and values, which are not rounded (LATENT-1)."""
    pairs = (("query", "query_rotary"), ("latent", "key_rotary"))
    of_rows, of_keys = (_none(arguments[own]) + _none(arguments[rotary]) for own, rotary in pairs)
    of_keys = of_keys[..., None, :, :]  # of one head
    depth = np.shape(arguments["value_weight"])[-1]
    special = special_of(of_rows, of_keys, np.zeros((*of_keys.shape[:-1], depth)), arguments, variant)
    arguments = {**arguments, **{name: _without(arguments[name]) for names in pairs for name in names}}
    query, latent = np.asarray(arguments["query"]), np.asarray(arguments["latent"])
    shape = (*query.shape[:-1], latent.shape[-2])  # (*B, Hq, L, S)
    heads = []
    for index in np.ndindex(*query.shape[:-2]):
        *batch, h = index
        shared = matrix(latent[tuple(batch)])
        own = shared * matrix(arguments["key_weight"][h])
        key = _join(own, matrix(arguments["key_rotary"][tuple(batch)]))
        q = _join(matrix(query[index]), matrix(arguments["query_rotary"][index]))
        head = head_of(q, key, arguments, index, shape, variant, special)
        heads.append((head, shared * matrix(arguments["value_weight"][h])))
    maxima = bool(arguments.get("return_max", False))
    return attend(heads, query.shape[:-1], shape[-1], depth, variant, dtype, special, maxima=maxima)


def _none(array: Any) -> NDArray[np.float64]:
    """Return NaN for each row of an array that holds NaN, and else 0."""
    return np.where(np.isnan(array).any(axis=-1, keepdims=True), np.nan, 0.0)


def _without(array: Any) -> NDArray[Any]:
    return np.where(np.isnan(array), 0, array)


def _join(left: fmpq_mat, right: fmpq_mat) -> fmpq_mat:
    """Put two matrices side by side."""
    rows = range(left.nrows())
    entries = [side[row, column] for row in rows for side in (left, right) for column in range(side.ncols())]
    return fmpq_mat(left.nrows(), left.ncols() + right.ncols(), entries)


@dataclass(frozen=True)
class _Summand:
    """A matrix that one head adds to a gradient: ``left @ transpose(m) @ right``, for one `m` of the head."""

    part: Part
    place: Index  # the place of the matrix in the gradient
    of_products: bool  # whether `m` has the gradients of the scaled products, and not the weights
    left: fmpq_mat | None  # None for the identity
    right: fmpq_mat

    def ball(self, balls: Balls) -> arb_mat:
        """Enclose it."""
        inner = balls.products * factor(self.part.head) if self.of_products else balls.weights
        result = inner.transpose() * arb_mat(self.right)
        return result if self.left is None else arb_mat(self.left) * result

    def pairs(self, row: int, column: int) -> fmpq_mat:
        """Return the factor of each pair in one element."""
        queries, keys = self.part.head.shape
        rows = [[int(row == j) for j in range(keys)]] if self.left is None else self.left.tolist()
        own = fmpq_mat(queries, 1, [self.right[i, column] for i in range(queries)])
        pairs = own * fmpq_mat(1, keys, list(rows[0 if self.left is None else row]))
        if self.of_products:
            return pairs
        kept = [pairs[i, j] * kept for i, row in enumerate(self.part.head.kept) for j, kept in enumerate(row)]
        return fmpq_mat(queries, keys, kept)

    def element(self, row: int, column: int) -> tuple[Part, fmpq_mat | None, fmpq_mat | None]:
        """Return the factors of the gradients of products and of weights in one element."""
        pairs = self.pairs(row, column)
        return (self.part, pairs, None) if self.of_products else (self.part, None, pairs)

    def mean_term(self, row: int, column: int, variant: str | None) -> fmpq:
        """Return what rows without a key add, whose output is the mean of all values (`uniform`)."""
        head = self.part.head
        empty = [i for i in range(head.shape[0]) if not head.keys(i) and head.keys_of_mean(i, variant)]
        if self.of_products or not empty:
            return fmpq(0)
        pairs = self.pairs(row, column)
        return sum((pairs[i, j] / head.shape[1] for i in empty for j in range(head.shape[1])), fmpq(0))


def evaluate_latent_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of a call by way of the projected keys and values (LATENT-5)."""
    finite = _clean(arguments, variant)
    parts = list(_parts(finite, variant))
    depth = np.shape(arguments["query"])[-1]
    joined = (*np.shape(arguments["query"])[:-1], depth + np.shape(arguments["query_rotary"])[-1])
    of_arrays = {name: np.shape(arguments[name]) for name in ("bias", "sinks") if name in arguments}
    shapes = {"d_query": joined, **{f"d_{name}": shape for name, shape in of_arrays.items()}}
    shapes |= {"d_scale": ()} if arguments.get("return_d_scale") else {}
    plain = settle_gradients(parts, shapes, variant, dict.fromkeys(shapes, dtype))
    query = plain.pop("d_query")
    results = {
        "d_query": Settled(query.values[..., :depth], query.bits, query.radius),
        "d_query_rotary": Settled(query.values[..., depth:], query.bits, query.radius),
    }

    @cache
    def balls(_bits: int) -> dict[int, Balls]:
        return {id(part): balls_of(part, variant) for part in parts}

    for name, summands in _summands(finite, parts).items():
        shape = np.shape(arguments[name])
        results[f"d_{name}"] = settle(
            shape, _encloser(shape, summands, balls), _decider(shape, summands, variant), dtype
        )
    results |= plain
    if variant == "nan":
        _put_nan(results, parts, arguments)
    return results


def _clean(arguments: Mapping[str, Any], variant: str | None) -> dict[str, Any]:
    """Replace non-finite numbers by 0 if no gradient depends on them (GRAD-12)."""
    depth, inner = (np.shape(arguments[name])[-1] for name in ("query", "latent"))
    query = np.concatenate([arguments["query"], arguments["query_rotary"]], axis=-1, dtype=np.float64)
    stored = np.concatenate([arguments["latent"], arguments["key_rotary"]], axis=-1, dtype=np.float64)
    key = stored[..., None, :, :]
    result = clean({**arguments, "query": query, "key": key, "value": key[..., :inner]}, variant)
    query, key = result["query"], result["key"][..., 0, :, :]
    return {
        **result,
        "query": query[..., :depth],
        "query_rotary": query[..., depth:],
        "latent": key[..., :inner],
        "key_rotary": key[..., inner:],
    }


def _parts(arguments: Mapping[str, Any], variant: str | None) -> Iterator[Part]:
    """Collect the data of each query head, with keys and values of its own."""
    query, latent = np.asarray(arguments["query"]), np.asarray(arguments["latent"])
    shape = (*query.shape[:-1], latent.shape[-2])
    of_lse = 0.0 if variant == "ignored" else arguments.get("d_lse", 0.0)
    of_lse = np.broadcast_to(of_lse, shape[:-1])
    for index in np.ndindex(*shape[:-2]):
        *batch, h = index
        shared = matrix(latent[tuple(batch)])
        key = _join(
            shared * matrix(arguments["key_weight"][h]), matrix(arguments["key_rotary"][tuple(batch)])
        )
        q = _join(matrix(query[index]), matrix(arguments["query_rotary"][index]))
        value = shared * matrix(arguments["value_weight"][h])
        head = head_of(q, key, arguments, index, shape, variant, None)
        g = matrix(np.asarray(arguments["d_output"])[index])
        yield part_of(head, (index, index), (q, key, value), g, [rational(x) for x in of_lse[index]])


def _summands(arguments: Mapping[str, Any], parts: list[Part]) -> dict[str, list[_Summand]]:
    """Collect what each head adds to the gradients that several heads or batch entries share."""
    depth = np.shape(arguments["query"])[-1]
    results: dict[str, list[_Summand]] = {
        name: [] for name in ("latent", "key_rotary", "key_weight", "value_weight")
    }
    for part in parts:
        *batch, h = part.index
        entry, head = tuple(batch), (h,)
        weights = {name: matrix(arguments[f"{name}_weight"][h]).transpose() for name in ("key", "value")}
        own, rotary = (
            _columns(part.query, columns) for columns in (range(depth), range(depth, part.query.ncols()))
        )
        latent = matrix(arguments["latent"][entry]).transpose()
        results["latent"] += [
            _Summand(part, entry, True, None, own * weights["key"]),
            _Summand(part, entry, False, None, part.cotangent * weights["value"]),
        ]
        results["key_rotary"].append(_Summand(part, entry, True, None, rotary))
        results["key_weight"].append(_Summand(part, head, True, latent, own))
        results["value_weight"].append(_Summand(part, head, False, latent, part.cotangent))
    return results


def _columns(given: fmpq_mat, columns: range) -> fmpq_mat:
    rows = range(given.nrows())
    return fmpq_mat(given.nrows(), len(columns), [given[row, column] for row in rows for column in columns])


def _encloser(
    shape: tuple[int, ...], summands: list[_Summand], balls: Callable[[int], dict[int, Balls]]
) -> Callable[[], list[arb]]:
    def enclose() -> list[arb]:
        known = balls(ctx.prec)
        sums = {place: arb_mat(*shape[-2:]) for place in np.ndindex(*shape[:-2])}
        for summand in summands:
            sums[summand.place] += summand.ball(known[id(summand.part)])
        return [ball for total in sums.values() for ball in total.entries()]

    return enclose


def _decider(
    shape: tuple[int, ...], summands: list[_Summand], variant: str | None
) -> Callable[[int], fmpq | None]:
    def decide(flat: int) -> fmpq | None:
        """Return an element if it is rational, else None."""
        *outer, row, column = map(int, np.unravel_index(flat, shape))
        own = [summand for summand in summands if summand.place == tuple(outer)]
        result = exactly([summand.element(row, column) for summand in own], variant)
        filled = (summand.mean_term(row, column, variant) for summand in own)
        return None if result is None else sum(filled, result)

    return decide


def _put_nan(results: Mapping[str, Settled], parts: list[Part], arguments: Mapping[str, Any]) -> None:
    """Fill in the NaN that rows without an allowed key cause by 0 / 0 (`nan` of GRAD-10)."""
    for part in parts:
        empty = ~part.head.allowed.any(axis=-1)
        if not empty.any() or not part.head.shape[1]:
            continue
        *batch, h = part.index
        places: dict[str, Any] = {"query": (*part.index, empty), "query_rotary": (*part.index, empty)}
        places |= dict.fromkeys(("latent", "key_rotary"), tuple(batch))
        places |= dict.fromkeys(("key_weight", "value_weight"), (h,))
        for name, place in places.items():
            results[f"d_{name}"].values[place] = np.nan
        put_nan(results, part, parts, arguments.get("bias"), empty)

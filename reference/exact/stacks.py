"""Forms and their stacks for the exact oracle: each sequence of a call becomes one call of attention."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec.operations import OPERATIONS
from attnspec.reference.exact.attention import evaluate_attention
from attnspec.reference.exact.balls import Settled
from attnspec.reference.exact.forms import merge_proofs, whole, with_mask
from attnspec.reference.exact.latent import attend_latent

Arguments = dict[str, Any]
Index = tuple[int, ...]
#: Arguments with axes of queries and keys, and those with one axis of one of them.
_PAIRS = ("mask", "bias", "dropout_mask")
_OF_QUERIES, _OF_KEYS = (
    ("query_segment_ids", "query_positions"),
    ("key_segment_ids", "key_positions"),
)
_PLAIN = ("scale", "softcap", "is_causal", "window", "sinks", "dropout_rate", "return_max")


def evaluate_stack(
    operation: str, given: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the outputs of an operation of one form, or of several (STACK-1)."""
    form = OPERATIONS[operation]
    stack = _Stack(dict(given), form.layers, at_end=variant == "bottom-right")
    sizes = {"output": (stack.depth,), "weights": (stack.keys,)}
    wanted = form.judged(given)
    empty = {"lse": -np.inf, "max": -np.inf}
    results = {name: np.full((*stack.rows, *sizes.get(name, ())), empty.get(name, 0.0)) for name in wanted}
    proofs = []
    for place, keys, plain in stack.calls():
        compute = attend_latent if "latent" in form.layers else evaluate_attention
        own = compute(plain, None if variant == "bottom-right" else variant, dtype)
        for name in wanted:
            if name == "weights":
                results[name][(*place, keys)] = own[name].values
            else:
                results[name][place] = own[name].values
            proofs.append(own[name])
    return {name: merge_proofs(array, proofs) for name, array in results.items()}


class _Stack:
    """A call whose codes are decoded and whose lists are a mask."""

    def __init__(self, given: Arguments, layers: tuple[str, ...], *, at_end: bool) -> None:
        self.at_end = at_end  # the variant of PACK-5
        self.layers, self.held = layers, ("latent", "key_rotary") if "latent" in layers else ("key", "value")
        self.given = _decode(given) if "quantized" in layers else given
        self.pages = {name: np.asarray(self.given[f"{name}_pages"]) for name in self._paged_arrays()}
        query = np.asarray(given["query"])
        self.rows, self.batch = query.shape[:-1], query.shape[:-3]  # of a packed row no batch axis is left
        first = self.held[0]
        if self.pages:
            self.keys = np.shape(given["block_table"])[-1] * self.pages[first].shape[-2]
            key_outer = (*self.batch, *self.pages[first].shape[1:-2])
        else:
            self.keys, key_outer = np.shape(self.given[first])[-2], np.shape(self.given[first])[:-2]
        last = "value_weight" if "latent" in layers else "value"
        self.depth = np.shape(self.pages[last] if last in self.pages else self.given[last])[-1]
        if {"listed", "block_sparse"} & {*layers}:
            lists = dict(self.given)
            if "latent" in layers:
                key_outer = (*self.batch, 1)
                if "key_indices" in lists:
                    lists["key_indices"] = np.expand_dims(lists["key_indices"], -3)
            self.given = with_mask(lists, (*self.rows, self.keys), key_outer)

    def _paged_arrays(self) -> tuple[str, ...]:
        return self.held if "paged" in self.layers else ()

    def calls(self) -> Iterator[tuple[tuple[Any, ...], Any, Arguments]]:
        """Yield for each sequence the place of its rows, that of its keys, and its call of attention."""
        if "packed" in self.layers:
            starts = np.asarray(self.given["query_starts"]).tolist()
            for g in range(len(starts) - 1):
                rows = range(starts[g], starts[g + 1])
                place = (slice(None), slice(rows.start, rows.stop))
                yield self._call(place, (g,), (), len(rows))
        elif "paged" in self.layers:
            for entry in np.ndindex(*self.batch):
                yield self._call((*entry, slice(None), slice(None)), entry, entry, self.rows[-1])
        else:
            yield (slice(None),), slice(None), self._whole()

    def _whole(self) -> Arguments:
        """Return the call of a stack without sequences, which is a call of attention as it is."""
        coded = ("_codes", "_scales", "_zero_points", "encoding")
        return {name: x for name, x in self.given.items() if not name.endswith(coded)}

    def _call(
        self, place: tuple[Any, ...], sequence: Index, entry: Index, queries: int
    ) -> tuple[tuple[Any, ...], Any, Arguments]:
        """Cut a sequence out of every argument. Positions are given for each of its queries and keys."""
        given, rows = self.given, place[-1]
        length = _entry_number(given.get("query_lengths", queries), sequence)
        if self.pages:
            first, end = (
                _entry_number(given.get("left_padding", 0), sequence),
                _entry_number(given["key_lengths"], sequence),
            )
            end += np.shape(given["new_key"])[-2] if "new_key" in given else 0
            keys, at_end = range(first, max(first, end)), end - queries
            cut = {name: self._gather(name, sequence, keys) for name in self.held}
            of_keys = {name: np.asarray(given[name])[sequence][keys] for name in _OF_KEYS if name in given}
        else:
            g = sequence[0]
            begin, end = (int(x) for x in np.asarray(given["key_starts"])[g : g + 2])
            used = min(end - begin, _entry_number(given.get("key_lengths", end - begin), sequence))
            keys, first, at_end = range(begin, begin + used), 0, 0
            if self.at_end and np.ndim(given.get("query_offset", 0)) == 0 and not given.get("query_offset"):
                given, at_end = {**given, "query_offset": None}, end - begin - queries
            cut = {name: np.asarray(given[name])[..., keys, :] for name in self.held}
            of_keys = {name: np.asarray(given[name])[keys] for name in _OF_KEYS if name in given}
        offset = given.get("query_offset")
        start = at_end if offset is None else _entry_number(offset, sequence)
        plain: Arguments = {
            name: np.asarray(given[name])[place] for name in ("query", "query_rotary") if name in given
        }
        plain |= cut | {
            name: given[name] for name in (*_PLAIN, "key_weight", "value_weight") if name in given
        }
        plain |= {"query_positions": np.arange(start, start + queries), "query_lengths": length}
        plain |= {"key_positions": np.arange(first, first + len(keys))} | of_keys
        plain |= {name: np.asarray(given[name])[(*entry, rows)] for name in _OF_QUERIES if name in given}
        for name in _PAIRS:
            if name in given:
                pairs = np.broadcast_to(given[name], (*self.rows, self.keys))[place]
                plain[name] = pairs[..., keys.start : keys.stop]
        return place, slice(keys.start, keys.stop), plain

    def _gather(self, name: str, sequence: Index, keys: range) -> Any:
        """Collect positions of a sequence, one at a time."""
        pages = self.pages[name]
        table = np.asarray(self.given["block_table"])[sequence].tolist()
        size, new = pages.shape[-2], self.given.get(f"new_{name}")
        held = keys.stop if new is None else _entry_number(self.given["key_lengths"], sequence)
        columns = [pages[int(table[j // size]), ..., j % size, :] for j in keys if j < held]
        if new is not None:
            columns += [np.asarray(new)[sequence][..., j - held, :] for j in keys if j >= held]
        shape = (*pages.shape[1:-2], 0, pages.shape[-1])
        return np.stack(columns, axis=-2) if columns else np.zeros(shape)


def _decode(given: Arguments) -> Arguments:
    """Decode codes, in pages or not, where they are stored."""
    numbers = dict(given)
    for of in ("key", "value", "latent"):
        name = next((own for own in (f"{of}_pages", f"{of}_codes") if own in given), None)
        if name is not None:
            numbers[name.removesuffix("_codes")] = whole(given | {f"{of}_codes": given[name]}, f"{of}_")
    return numbers


def _entry_number(given: Any, sequence: Index) -> int:
    array = np.asarray(given)
    return int(array) if array.ndim == 0 else int(array[sequence])

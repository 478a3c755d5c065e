"""Attention by an operation of a form: calls of attention are packed or paged, and their results unpacked."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend, parameters
from attnspec.backends.errors import Unsupported
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Shape

#: The forms in which any call of attention can be stored.
FORMS = ("packed_attention", "paged_attention", "packed_paged_attention")
#: The positions of a page, and the number in places that no sequence has.
_PAGE, _UNREAD = 16, 1000.0
#: What a query with nothing to attend to has (MASK-6, SOFT-7, SOFT-8).
_EMPTY = {"lse": -inf, "max": -inf}
_LENGTHS = {"L": "query_lengths", "S": "key_lengths"}


def attention_of_form(backend: Backend) -> Backend:
    """Let a backend without attention compute it by its packed or paged operation.

    Each batch entry is a sequence. Rows past a length are cut out of packed rows. Pages lie in any order.
    """
    if backend.function("attention") is not None:
        return backend
    form = next((name for name in FORMS if backend.function(name) is not None), None)
    if form is None:
        return backend
    companions = dict(backend.companions)
    if f"{form}_vjp" in companions:
        companions["attention_vjp"] = _by_form(backend, f"{form}_vjp", "attention_vjp")
    attention = _by_form(backend, form, "attention")
    notes = (*backend.notes, f"calls of attention are made as calls of {form}")
    return replace(backend, attention=attention, companions=companions, notes=notes)


def _by_form(backend: Backend, form: str, operation: str) -> Callable[..., Any]:
    """Return a function with the arguments of an operation that a function of a form can compute."""
    function, whole = backend.function(form), OPERATIONS[operation]
    assert function is not None  # noqa: S101 - for the type checker: the caller has asked
    taken = parameters(function)
    packed = "packed" in OPERATIONS[form.removesuffix("_vjp")].layers
    shapes = {argument.name: argument.shape for argument in (*whole.arguments.values(), *whole.forward)}
    shapes |= {result.name: result.shape for result in whole.results}

    def compute(*arrays: Any, **options: Any) -> Any:
        given = dict(zip(whole.arrays, arrays, strict=True))
        given |= {name: x for name, x in options.items() if x is not None and x is not False}
        stored = _Stored.of(backend, form, given)
        if "d_lse" in given and "sinks" in given and "query_lengths" in given and packed:
            raise Unsupported("a row that is cut out has a cotangent, which its sink would get")
        # Rows past a length are cut out of packed rows, and every call of pages has the lengths of keys.
        apart = ("query_offset", *(_LENGTHS.values() if packed else ()))
        call = {name: stored.store(x, shapes.get(name, ())) for name, x in given.items() if name not in apart}
        call |= stored.own(call) | stored.offset(given, own="query_offset" in taken)
        stored_arrays = [call.pop(name) for name in OPERATIONS[form].arrays]
        results = function(*stored_arrays, **call)
        several = results if isinstance(results, tuple | list) else (results,)
        sinks = {"lse": given.get("sinks")}
        outputs = tuple(
            stored.restore(x, shapes[name], _EMPTY.get(name, 0.0), sinks.get(name))
            for name, x in zip(whole.wanted(given), several, strict=True)
        )
        return outputs if len(outputs) > 1 else outputs[0]

    offered = [name for name in (*whole.options, *(x.name for x in whole.forward)) if name in taken]
    offered += [] if "query_offset" in offered else ["query_offset"]
    offered += [name for name in _LENGTHS.values() if packed and name not in offered]
    offered += ["key_lengths"] if not packed and "key_lengths" not in offered else []
    left = ("return_weights",)
    kinds = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in whole.arrays]
    kinds += [Parameter(x, Parameter.KEYWORD_ONLY, default=None) for x in offered if x not in left]
    compute.__dict__ |= {"__signature__": Signature(kinds), "copies": True}  # which callers read
    return compute


@dataclass(frozen=True)
class _Stored:
    """One call of attention as a form stores it."""

    backend: Backend
    packed: bool
    paged: bool
    batch: tuple[int, ...]
    sizes: dict[str, int]  # the lengths of the axes L and S
    used: dict[str, NDArray[np.int64]]  # of each sequence, the part of them that it has

    @classmethod
    def of(cls, backend: Backend, form: str, given: dict[str, Any]) -> "_Stored":
        """Read the sizes of a call."""
        layers = OPERATIONS[form.removesuffix("_vjp")].layers
        if len(given["query"].shape) < 3:
            raise Unsupported("a call without heads has no place in the layout")
        batch = tuple(given["query"].shape[:-3])
        sizes = {"L": given["query"].shape[-2], "S": given["key"].shape[-2]}
        used = {}
        for letter, name in _LENGTHS.items():
            length = given.get(name, sizes[letter])
            length = length if isinstance(length, int) else backend.to_numpy(length)
            used[letter] = np.broadcast_to(np.asarray(length, np.int64), batch).reshape(-1)
        return cls(backend, "packed" in layers, "paged" in layers, batch, sizes, used)

    @property
    def count(self) -> int:
        """The number of sequences."""
        return prod(self.batch)

    @property
    def table(self) -> NDArray[np.int64]:
        """The pages of each sequence, ``(G, T)``."""
        pages = -(-self.sizes["S"] // _PAGE)
        order = np.random.default_rng(0).permutation(self.count * pages)
        return order.reshape(self.count, pages)

    def own(self, call: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that attention does not have, in the place of those that it has."""
        put, own = self.backend.to_library, {}
        for letter, side in (("L", "query"), ("S", "key")):
            if self.packed and (side == "query" or not self.paged):
                own[f"{side}_starts"] = put(np.append(0, np.cumsum(self.used[letter])))
        if self.paged:
            own |= {f"{name}_pages": call.pop(name) for name in ("key", "value")}
            own |= {"block_table": put(self.table), "key_lengths": put(self.used["S"])}
        return own

    def offset(self, given: dict[str, Any], *, own: bool) -> dict[str, Any]:
        """Return an offset for each sequence, where positions of queries matter."""
        if "query_positions" in given or not {"is_causal", "window"} & {*given}:
            return {}
        offset = given.get("query_offset", 0)
        offset = offset if isinstance(offset, int) else self.backend.to_numpy(offset)
        offset = np.broadcast_to(np.asarray(offset, np.int64), self.batch).reshape(-1)
        if own:
            return {"query_offset": self.backend.to_library(offset.copy())}
        at_end = self.paged or self.backend.dialect.get("PACK-5") == "bottom-right"
        if not np.array_equal(offset, self.used["S"] - self.used["L"] if at_end else 0 * offset):
            raise Unsupported("its function takes no query_offset, and aligns this call otherwise")
        return {}

    def store(self, array: Any, letters: Shape) -> Any:
        """Store an array of attention with axes of these letters."""
        if BATCH not in letters or isinstance(array, int):
            return array
        xp, inner = self.backend.xp, letters[1:]
        if {"L", "S"} <= {*inner}:  # a mask or a bias, which may lack axes
            if self.packed and not self.paged and self.count > 1:
                raise Unsupported("a mask of several packed sequences would be too large")
            heads = array.shape[-3] if len(array.shape) > 2 else 1
            array = xp.broadcast_to(array, (*self.batch, heads, self.sizes["L"], self.sizes["S"]))
        array = xp.reshape(array, (self.count, *array.shape[len(self.batch) :]))
        if self.paged and "S" in inner:
            array = self._with_room(array, 1 + inner.index("S"))
            array = self._in_pages(array) if inner[-1] in ("D", "Dv") else array
        for axis, letter in self._rows(inner):
            if len(array.shape) > len(inner):  # the axis of sequences is still there
                sides = (*range(1, axis + 1), 0, *range(axis + 1, len(array.shape)))
                array = xp.permute_dims(array, sides)
                array = xp.reshape(array, (*array.shape[:axis], -1, *array.shape[axis + 2 :]))
            array = xp.take(array, self.backend.to_library(self._places(letter)), axis=axis)
        return array

    def restore(self, array: Any, letters: Shape, empty: float, sinks: Any = None) -> Any:
        """Return a result in the shape that attention gives it.

        Rows past a length are empty, and their lse is the sink of their head.
        """
        if BATCH not in letters:
            return array
        xp, inner = self.backend.xp, letters[1:]
        for axis, letter in self._rows(inner):
            places, size = self._places(letter), self.count * self.sizes[letter]
            back = np.full(size, len(places))
            back[places] = np.arange(len(places))
            shape = (*array.shape[:axis], 1, *array.shape[axis + 1 :])
            own = None if sinks is None else xp.astype(sinks[:, None], array.dtype)
            filler = self._full(array, shape, empty) if own is None else own
            array = xp.take(xp.concat([array, filler], axis=axis), self.backend.to_library(back), axis=axis)
        if rows := self._rows(inner):
            axis = rows[0][0]
            split = (*array.shape[:axis], self.count, -1, *array.shape[axis + 1 :])
            sides = (axis, *(side for side in range(len(split)) if side != axis))
            array = xp.permute_dims(xp.reshape(array, split), sides)
        return xp.reshape(array, (*self.batch, *array.shape[1:]))

    def _rows(self, inner: Shape) -> list[tuple[int, str]]:
        """Return the axes whose rows a form packs, with their letters."""
        packed = {"L", "S"} if not self.paged else {"L"}
        return [(axis, letter) for axis, letter in enumerate(inner) if self.packed and letter in packed]

    def _places(self, letter: str) -> NDArray[np.int64]:
        """Return the rows, of all rows of all sequences, that are within the length of theirs."""
        size = self.sizes[letter]
        return np.concatenate([g * size + np.arange(n) for g, n in enumerate(self.used[letter])])

    def _with_room(self, array: Any, axis: int) -> Any:
        """Lengthen the axis of keys to whole pages."""
        more = -self.sizes["S"] % _PAGE
        shape = (*array.shape[:axis], more, *array.shape[axis + 1 :])
        return self.backend.xp.concat([array, self._full(array, shape, _UNREAD)], axis=axis)

    def _full(self, like: Any, shape: tuple[int, ...], number: float) -> Any:
        """Make an array of one number, with the dtype of another array."""
        dtype = self.backend.to_numpy(like[(slice(0, 0),) * len(shape)]).dtype
        return self.backend.to_library(np.full(shape, number).astype(dtype))

    def _in_pages(self, array: Any) -> Any:
        """Cut keys or values ``(G, Hkv, T * K, D)`` into pages ``(P, Hkv, K, D)``, in any order."""
        xp, (count, heads, _, depth) = self.backend.xp, array.shape
        array = xp.permute_dims(xp.reshape(array, (count, heads, -1, _PAGE, depth)), (0, 2, 1, 3, 4))
        pages = xp.reshape(array, (-1, heads, _PAGE, depth))
        return xp.take(pages, self.backend.to_library(np.argsort(self.table.ravel())), axis=0)

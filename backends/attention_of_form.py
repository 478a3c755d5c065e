"""Attention by an operation of a form: calls are stored as the form stores them, and results restored."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from math import inf
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend, parameters
from attnspec.backends.constraints import fits
from attnspec.backends.errors import Unsupported
from attnspec.backends.stored_codes import code, encodings
from attnspec.backends.stored_latent import Latent
from attnspec.backends.stored_lists import MASKS, blocks_of_call, with_lists
from attnspec.backends.stored_rows import LENGTHS, Rows
from attnspec.operations import Shape
from attnspec.operations.operation import name_of

LOW_PRECISION = "low_precision_attention"
_LAYERS = {name: form.layers for name, form in OPERATIONS.items() if form.layers}
#: The forms in which calls of attention can be stored, those first that can store any of them.
FORMS = (
    *("packed_attention", "paged_attention", "packed_paged_attention"),
    *sorted(
        (name for name, layers in _LAYERS.items() if not {*layers} <= {"packed", "paged", "sharded"}),
        key=lambda name: len(_LAYERS[name]),
    ),
    LOW_PRECISION,
)
#: What a query with nothing to attend to has (MASK-6, SOFT-7, SOFT-8).
_EMPTY = {"lse": -inf, "max": -inf}


def attention_of_form(backend: Backend) -> Backend:
    """Let a backend without attention compute it by the operation of a form or of a stack of forms.

    Each batch entry is a sequence. Rows past a length are cut out of packed rows. Pages lie in any order.
    Codes and latent vectors hold the numbers exactly. Lists and blocks hold the keys that masks allow.
    """
    if backend.function("attention") is not None:
        return backend
    form = next((name for name in FORMS if backend.function(name) is not None), None)
    if form is None:
        return backend
    companions = dict(backend.companions)
    if f"{form}_vjp" in OPERATIONS and backend.function(f"{form}_vjp") is not None:
        companions["attention_vjp"] = _by_form(backend, f"{form}_vjp", "attention_vjp")
    elif {"quantized", "latent"}.intersection(_LAYERS.get(form, ())) or form == LOW_PRECISION:
        companions["attention_vjp"] = _decline_gradients(form)
    attention = _by_form(backend, form, "attention")
    notes = (*backend.notes, f"calls of attention are made as calls of {form}")
    return replace(backend, attention=attention, companions=companions, notes=notes)


def _by_form(backend: Backend, form: str, operation: str) -> Callable[..., Any]:
    """Return a function with the arguments of an operation that a function of a form can compute."""
    whole, storage = OPERATIONS[operation], _Storage.of(backend, form, operation)

    def compute(*arrays: Any, **options: Any) -> Any:
        given = dict(zip(whole.arrays, arrays, strict=True))
        given |= {name: x for name, x in options.items() if x is not None and x is not False}
        rows = Rows.of(backend, storage.layers, given)
        if "d_lse" in given and "sinks" in given and "query_lengths" in given and rows.packed:
            raise Unsupported("a row that is cut out has a cotangent, which its sink would get")
        latent = Latent.of(backend, given) if "latent" in storage.layers else None
        results = storage.results(rows, latent, given)
        sinks = {"lse": given.get("sinks")}
        outputs = tuple(
            rows.restore(results[name], storage.letters[name], _EMPTY.get(name, 0.0), sinks.get(name))
            for name in whole.wanted(given)
        )
        return outputs if len(outputs) > 1 else outputs[0]

    kinds = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in whole.arrays]
    kinds += [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in storage.options(operation)]
    signature = {"__signature__": Signature(kinds), "copies": True, "form": form}  # which callers read
    compute.__dict__ |= signature
    return compute


@dataclass(frozen=True)
class _Storage:
    """How a function of a form stores calls of an operation."""

    backend: Backend
    form: str
    layers: tuple[str, ...]
    plain: str  # the form without packed rows and pages
    letters: Mapping[str, Shape]  # of the arrays before they are put into rows and pages, and of the results

    @classmethod
    def of(cls, backend: Backend, form: str, operation: str) -> "_Storage":
        """Derive the storage from the declarations."""
        layers, whole = _LAYERS.get(form.removesuffix("_vjp"), ()), OPERATIONS[operation]
        inner = tuple(layer for layer in layers if layer not in ("packed", "paged"))
        plain = LOW_PRECISION if form == LOW_PRECISION else name_of(inner)
        known = [*OPERATIONS[plain].arguments.values(), *whole.arguments.values(), *whole.forward]
        letters = {argument.name: argument.shape for argument in known}
        return cls(
            backend, form, layers, plain, letters | {result.name: result.shape for result in whole.results}
        )

    @property
    def parameters(self) -> frozenset[str]:
        """The arguments that the function takes."""
        function = self.backend.function(self.form)
        assert function is not None  # noqa: S101 - for the type checker: the caller has asked
        return parameters(function)

    def options(self, operation: str) -> list[str]:
        """Name the options of an operation that the function takes, or that the storage stands for."""
        whole = OPERATIONS[operation]
        apart = {"query_offset"}
        apart |= {*LENGTHS.values()} if "packed" in self.layers else set()
        apart |= {"key_lengths"} if "paged" in self.layers else set()
        apart |= {*MASKS} if "listed" in self.layers else set()
        names = (*whole.options, *(argument.name for argument in whole.forward))
        return [name for name in names if name in self.parameters | apart and name != "return_weights"]

    def results(self, rows: Rows, latent: Latent | None, given: dict[str, Any]) -> dict[str, Any]:
        """Call the function with the first of several encodings that it takes. Return the results by name."""
        function, form = self.backend.function(self.form), OPERATIONS[self.form]
        assert function is not None  # noqa: S101 - for the type checker: the caller has asked
        declined: Exception | None = None
        for call in self._calls(rows, latent, given):
            options = {name: x for name, x in call.items() if name not in form.arrays}
            try:
                results = function(*(call[name] for name in form.arrays), **options)
            except (Unsupported, NotImplementedError) as error:
                declined = error
                continue
            several = results if isinstance(results, tuple | list) else (results,)
            named = dict(zip(form.wanted(call), several, strict=True))
            return latent.restore(named) if latent else named
        raise declined or Unsupported("the function takes no encoding that holds the keys and the values")

    def _calls(self, rows: Rows, latent: Latent | None, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the calls that stand for one of attention: one, or one for each encoding of codes."""
        taken, arrays = self.parameters, OPERATIONS[self.plain].arrays
        blocks = blocks_of_call(rows, given, taken) if "block_sparse" in self.layers else {}
        if "listed" in self.layers:
            given = with_lists(rows, given, taken, latent=latent is not None)
        numbers = latent.store(given, taken) if latent else given
        sources = [name.removesuffix("_codes") for name in arrays if name.endswith("_codes")]
        held = [rows.backend.to_numpy(numbers[name]) for name in sources]
        # Rows past a length are cut out of packed rows, and every call of pages has the lengths of keys.
        apart = ("query_offset", *(LENGTHS.values() if rows.packed else ()))
        offset = rows.offset(given, own="query_offset" in taken)
        only = rows.backend.constraints.encoding
        for encoding in encodings(held, taken, sum(rows.sizes.values()), only) if sources else ("",):
            call, shared = code(rows.backend, self.plain, numbers, taken, encoding)
            stored = {
                name: rows.store(x, self.letters.get(name, ()))
                for name, x in call.items()
                if name not in apart
            }
            keys = tuple(name for name in arrays if "S" in OPERATIONS[self.plain].arguments[name].shape)
            stored |= rows.own(stored, keys) | offset | shared | blocks
            if misfit := fits(rows.backend.constraints, stored, self.form):
                raise Unsupported(f"it {misfit}")
            yield stored


def _decline_gradients(form: str) -> Callable[..., Any]:
    """Make a function of gradients that declines every call."""

    def decline(*_: Any, **__: Any) -> Any:
        raise Unsupported(f"gradients of {form} are not an operation")

    options = [*OPERATIONS["attention_vjp"].arguments]
    decline.__dict__["__signature__"] = Signature(
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in options]
    )
    return decline

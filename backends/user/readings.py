"""Ways to read a function of which its plain calls show nothing, or less than another operation."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.backends.errors import BackendError
from attnspec.backends.user.description import Inference, Known, dtypes_of
from attnspec.backends.user.few_calls import has_names
from attnspec.backends.user.own_values import with_own_values
from attnspec.backends.user.probe import FEW_DEPTHS, Probe
from attnspec.backends.user.rotation import neutral_values
from attnspec.backends.user.signature import form_of
from attnspec.backends.user.trials import Guess
from attnspec.operations.aliases import BASES, INVERSE

Infer = Callable[[Backend, str, Callable[..., Any], Known], tuple[str, Inference]]


@dataclass(frozen=True)
class _Reading:
    """An operation, a function with other values of its own, and what is known of it, with reasons."""

    operation: str
    function: Callable[..., Any]
    known: Known
    why: dict[str, str]

    def with_keys(self, backend: Backend, why: dict[str, str], **keys: Any) -> "_Reading":
        """Return a reading that knows more keys."""
        convention = replace(self.known.convention, **keys)
        function = with_own_values(
            backend.name, self.function, keys.get("inverse", ()), keys.get("fixed", {})
        )
        known = replace(self.known, convention=convention, keys=self.known.keys | {*keys} - {"names"})
        return replace(self, function=function, known=known, why=self.why | why)


def infer_readings(
    infer: Infer, backend: Backend, operation: str, function: Callable[..., Any], known: Known
) -> tuple[str, Inference]:
    """Return what the first reading shows that calls confirm, or else what plain calls show."""
    plain = _Reading(operation, function, known, {})
    first = [*_as_packed(backend, plain), *_inverse(backend, plain)]
    for reading in first:
        if shown := _confirm(infer, backend, reading):
            return shown
    error, found = None, None
    try:
        found = infer(backend, operation, function, known)
    except BackendError as raised:
        error = raised
    if found is None or _is_guess(found[1]):
        later = chain.from_iterable(_without_rotation(backend, reading) for reading in (plain, *first))
        single = [*_of_one_query(backend, plain)] if found is None else []
        later = chain(later, single)
        if shown := next(filter(None, (_confirm(infer, backend, reading) for reading in later)), None):
            return shown
    if found is None:  # its calls of one query may all be wrong
        guesses = (_confirm(infer, backend, reading, guessed=True) for reading in single)
        found = next(filter(None, guesses), None)
    if found is None:
        raise error or BackendError(backend.name)
    return found


def _is_guess(found: Inference) -> bool:
    return isinstance(found.why.get("layout"), Guess)


def _confirm(
    infer: Infer, backend: Backend, reading: _Reading, *, guessed: bool = False
) -> tuple[str, Inference] | None:
    """Return what a reading shows if calls compute the operation, with causality if it is about that.

    With `guessed` it may be the nearest that calls show.
    """
    with suppress(BackendError):
        operation, found = infer(backend, reading.operation, reading.function, reading.known)
        about = ("layout", "is_causal") if "inverse" in reading.why else ("layout",)
        if guessed or not any(isinstance(found.why.get(key), Guess) for key in about):
            return operation, replace(found, why={**found.why, **reading.why})
    return None


def _as_packed(backend: Backend, plain: _Reading) -> Iterator[_Reading]:
    """Yield the form with boundaries of sequences, if these are optional for the function."""
    wider = form_of(plain.function, optional=True)[0]
    layers = OPERATIONS[wider].layers if wider else ()
    known = "operation" not in plain.known.keys and "packed" in layers and wider != plain.operation
    if known and has_names(backend, wider, plain.function, plain.known):
        yield replace(plain, operation=wider)


def _inverse(backend: Backend, plain: _Reading) -> Iterator[_Reading]:
    """Yield the reading in which a flag turns causality off."""
    names = plain.known.convention.names
    flags = (own for own in inspect.signature(plain.function).parameters if own.lower() in INVERSE)
    own = next(flags, "")
    if own and own not in names.values() and not {"is_causal", "inverse"} & {*names, *plain.known.keys}:
        why = {"inverse": "True where is_causal is False, as calls confirm"}
        yield plain.with_keys(backend, why, inverse=(own,), names={**names, "is_causal": own})


def _without_rotation(backend: Backend, reading: _Reading) -> Iterator[_Reading]:
    """Yield the readings in which a parameter turns a rotation off."""
    if "fixed" not in reading.known.keys:
        for own, (value, why) in neutral_values(reading.function).items():
            yield reading.with_keys(backend, {"fixed": why}, fixed={own: value})


def _of_one_query(backend: Backend, plain: _Reading) -> Iterator[_Reading]:
    """Yield the readings of attention that takes one query, if a call of it returns."""
    if plain.operation not in ("", "attention") or "one_query" in plain.known.keys:
        return
    # A rotation of one query and one key, each at position 0, would not be seen.
    if any(own.lower() in BASES for own in inspect.signature(plain.function).parameters):
        return
    why = {"one_query": "it is called for each query; with several it raised an error"}
    dtype = dtypes_of(backend, plain.known)[0]
    for kind in (True, "axis"):
        reading = plain.with_keys(backend, why, one_query=kind)
        depths = plain.known.depths or FEW_DEPTHS
        if any(
            Probe(backend, plain.function, reading.known, {}, depth, dtype).is_taken() for depth in depths
        ):
            yield reading

"""Calls a backend, checks that its inputs are unchanged, and names the outputs."""

import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend, Broken, Unsupported
from attnspec.backends.attention_of_form import attention_of_form
from attnspec.backends.backend import results_of
from attnspec.backends.errors import ConversionError
from attnspec.backends.user.joined import whole_of
from attnspec.case import SIZES
from attnspec.conformance.judge.dtypes import Outputs, is_real
from attnspec.conformance.judge.expected import forward_results
from attnspec.conformance.judge.failure import Declined, Failure, Missing, Raised
from attnspec.conformance.judge.layout import LAYOUTS, OF_ANY_NUMBERS, SHARED, SURROUNDED, needs_strides
from attnspec.conformance.judge.lists import require_lists
from attnspec.operations.operation import primal


def without(backend: Backend, *arguments: str, operation: str = "attention") -> Backend:
    """Hide arguments of an operation by removing them from the signature, which lists the capabilities."""
    function = backend.attention if operation == "attention" else backend.companions[operation]

    @wraps(function)
    def run(*arrays: Any, **options: Any) -> Any:
        return function(*arrays, **options)

    whole = signature(function)
    kept = [parameter for name, parameter in whole.parameters.items() if name not in arguments]
    run.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined] # read by inspect.signature
    return backend.with_function(operation, run)


def call(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    layout: Mapping[str, str] | None = None,
    outputs: Collection[str] = (),
) -> Outputs:
    """Call one operation of a backend with NumPy arguments.

    All outputs that the backend can return are requested, unless some are named.
    """
    function = backend.function(operation)
    if function is None:
        raise Missing(f"{backend.name} has no {operation}", f"operation {operation}")
    form = OPERATIONS[operation]
    missing = [name for name in form.stated(arguments) if not backend.has(operation, name)]
    if missing:
        lacks = [f"argument {name}" for name in missing]
        raise Missing(f"{backend.name} has no argument {', '.join(missing)}", *lacks)
    arguments = {name: x for name, x in arguments.items() if backend.has(operation, name)}
    arguments |= forward_results(backend, operation, arguments)
    asked = {
        result.option: True
        for result in form.results
        if result.option
        and backend.has(operation, result.option)
        and (result.name in outputs or not (outputs or result.apart))
    }
    without = [f"d_{name}" for name in getattr(function, "without_gradient", ())]
    wanted = [name for name in form.wanted({**arguments, **asked}) if name not in without]
    arguments = backend.array_library.fit_integers(arguments)
    given = {
        name: backend.to_library(thing) if isinstance(thing, np.ndarray) else thing
        for name, thing in arguments.items()
    }
    given |= _lay(backend, operation, arguments, layout, given) if layout else {}
    arrays = [given[name] for name in form.arrays]
    options = {name: thing for name, thing in given.items() if name not in form.arrays}
    try:
        # Settings that the implementation changes are restored. Its warnings are not judged.
        context = backend.array_library.at_call(given.values())
        with warnings.catch_warnings(), np.errstate(), context:
            warnings.simplefilter("ignore")
            returned = function(*arrays, **(options | asked))
    except (KeyboardInterrupt, Unsupported, Broken):
        raise
    except NotImplementedError as error:
        raise Declined(error) from error
    except ConversionError as failed:
        raise Raised(failed.error, failed.conversion, f"{failed.key} of {failed.of}") from failed
    except BaseException as error:  # sys.exit and pytest.skip in an implementation are errors too
        raise Raised(error, function) from error
    found = _name(backend, wanted, returned)
    given_arrays = {name: thing for name, thing in arguments.items() if isinstance(thing, np.ndarray)}
    after = backend.to_numpy_all([given[name] for name in given_arrays])
    for (name, thing), left in zip(given_arrays.items(), after, strict=True):
        # The conversion of an array may change its numbers, which is not the fault of the call.
        if not _same(left, thing) and not _same(left, _convert(backend, thing)):
            reason = f"{name}: expected to be unchanged, got changed by the call"
            raise Failure("NUM-4", reason, code="argument changed", outputs=found, argument=name)
    return found


def _convert(backend: Backend, array: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers that an array has in the library."""
    return backend.to_numpy(backend.to_library(array))


def _lay(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    layout: Mapping[str, str],
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arrays that have a layout, or are joined with one that has."""
    laid = _parts_of_joined(backend, operation, arguments, layout)
    for name, kind in layout.items():
        other = kind.removeprefix(SHARED)
        if name not in laid:
            own = other == kind
            laid[name] = _view(backend, kind, name, arguments[name]) if own else {**given, **laid}[other]
    return laid


def _parts_of_joined(
    backend: Backend, operation: str, arguments: Mapping[str, Any], layout: Mapping[str, str]
) -> dict[str, Any]:
    """Lay the arrays that a function takes joined in one array, as the first of them that has a layout."""
    if primal(operation) != "attention" or operation in backend.companions:
        return {}
    parts: dict[str, Any] = {}
    for names in getattr(backend.attention, "joined", ()):
        arrays = [arguments[name] for name in names]
        kinds = [layout[name] for name in names if name in layout]
        if not kinds or arrays[0].ndim < 3 or len({(x.shape, x.dtype) for x in arrays}) > 1:
            continue  # it is joined in new memory, or refused
        lies = f"{' and '.join(names)} in one array that lies {kinds[0]}"
        if operation != "attention":
            raise Missing(f"no gradient is taken of {lies}")
        if kinds[0].startswith(SHARED):
            raise Missing(f"{backend.name} takes {lies}, which is not possible")
        whole = _view(backend, kinds[0], names[0], np.stack(arrays, axis=-4), check=False)
        own = [whole[..., i, :, :, :] for i in range(len(names))]
        given = zip(own, arrays, strict=True)
        if whole_of(own, -4) is None or not all(
            _same(backend.to_numpy(x), _convert(backend, y)) for x, y in given
        ):
            raise Missing(f"{backend.library} cannot hold {lies}")
        parts |= dict(zip(names, own, strict=True))
    return parts


def _view(backend: Backend, kind: str, name: str, array: NDArray[Any], *, check: bool = True) -> Any:
    """Copy an array into the library in a memory layout, and check that it holds the same numbers."""
    if backend.array_library.strides not in needs_strides(kind):
        raise Missing(f"{backend.library} makes no view that lies {kind}")
    found = {**LAYOUTS, **SURROUNDED}[kind](backend.xp, backend.to_library(array))
    if check and kind in LAYOUTS and kind not in OF_ANY_NUMBERS and not _same(backend.to_numpy(found), array):
        raise ValueError(f"{name}: expected equal numbers for the layout {kind}, got others")
    return found


def observe(backend: Backend, case: Case) -> Outputs:
    """Make the call of a case, and determine the weights even if the backend does not return them.

    With the identity as value the output equals the weights. The identity is passed
    in slices as wide as the value, because some libraries accept no other depth. It
    would hide a NaN in the values, and a NaN in a key would appear in the weights, so
    the identity is used only if all numbers are finite.
    """
    arguments, only = case.arguments, case.outputs[:0]
    if case.chapter == SIZES:  # its weights may need too much memory
        backend, only = attention_of_form(backend), case.outputs
    outputs = call(backend, case.operation, arguments, case.layout, only)
    if case.must_raise:
        return outputs  # a call that must raise has no weights
    value = arguments.get("value")
    if case.operation != "attention" or "weights" in outputs or not _is_finite(arguments):
        return require_lists(case, outputs)
    if case.outputs and "weights" not in case.outputs:
        return outputs
    assert value is not None  # noqa: S101 - for the type checker: attention has values
    keys, depth = value.shape[-2:]
    layout = {name: kind for name, kind in case.layout.items() if not (name == "value" and SHARED in kind)}
    slices = []
    for start in range(0, keys, depth):
        identity = np.eye(keys, depth, -start, dtype=value.dtype)  # (S, Dv): key `start + c` in column c
        probe = {**arguments, "value": np.broadcast_to(identity, value.shape)}
        try:
            slices.append(call(backend, case.operation, probe, layout)["output"])
        except Failure as failure:
            failure.outputs = None  # they are not those of the case
            raise
    none = np.zeros((*outputs["output"].shape[:-1], 0), outputs["output"].dtype)
    outputs["weights"] = np.concatenate([none, *slices], axis=-1)[..., :keys]
    return outputs


def _is_finite(arguments: Mapping[str, Any]) -> bool:
    """Whether all numbers are finite. Minus infinity in a bias or a sink is allowed: it masks."""
    return not any(
        (~np.isfinite(x) & ((x != -np.inf) | (name not in ("bias", "sinks")))).any()
        for name, x in arguments.items()
        if is_real(x)
    )


def _name(backend: Backend, names: list[str], returned: Any) -> Outputs:
    parts = results_of(returned, len(names))
    if not isinstance(parts, tuple | list) or len(parts) != len(names):
        got = f"{len(parts)} of them" if isinstance(parts, tuple | list) else type(returned).__name__
        raise Failure(
            "SHAPE-10", f"result: expected a tuple of {', '.join(names)}, got {got}", code="no result"
        )
    with suppress(Exception, SystemExit):
        return dict(zip(names, backend.to_numpy_all(parts), strict=True))
    # Convert them one by one, to find the output at fault.
    for name, part in zip(names, parts, strict=True):
        try:
            backend.to_numpy(part)
        except (Exception, SystemExit) as error:
            if part is None and name.startswith("d_"):
                reason = f"{name}: expected a gradient or an error, got none: no output depends on it"
                raise Failure("GRAD-17", reason, code="no result") from error
            got = type(part).__name__ if type(error) is TypeError else f"{type(part).__name__} ({error})"
            reason = f"{name}: expected an array of {backend.library}, got {got}"
            raise Failure("SHAPE-3", reason, code="no result", output=name) from error
    raise AssertionError("outputs: expected to be converted one by one, got an error for all together")


def _same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return left.shape == right.shape and left.tobytes() == np.ascontiguousarray(right).tobytes()

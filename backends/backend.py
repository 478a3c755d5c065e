"""A backend: one implementation with the canonical signature."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.constraints import Constraints
from attnspec.backends.deviation import Deviation, holds
from attnspec.backends.errors import Unsupported
from attnspec.backends.library.library import Library
from attnspec.dialect import in_dtype
from attnspec.operations import Argument
from attnspec.operations.operation import primal


def no_attention(query: Any, key: Any, value: Any) -> Any:  # noqa: ARG001 - read by inspect.signature
    """Stand for attention in a backend that offers only companions. It is never called."""
    raise Unsupported("it offers no attention")


@dataclass(frozen=True)
class Backend:
    """One implementation, with what it supports and how it deviates.

    Attributes
    ----------
    name : str
        The name in commands and results.
    array_library : Library
        The library that it runs on, from `attnspec.backends.load_library`.
    attention : callable
        The operator, with canonical names. **Its signature is its list of
        capabilities**: an argument that it does not have is unsupported. The default is for a
        backend that offers only companions.
    dtypes : tuple of str
        The dtypes that it takes, some of `DTYPES`.
    companions : mapping of str to callable
        Other operations of the specification that it has, by name.
    dialect : mapping of str to str, or to a mapping
        Rule id to the variant of that rule that it shows. The suite verifies the variant. A mapping
        has the variants of some dtypes, or, for MASK-6, of the routes ``mask`` and ``bias``.
    deviations : tuple of Deviation
        How it breaks rules in ways that no variant describes.
    device : str
        The device of its arrays, as the library names it; empty for the default device.
    accuracy : {"cast", "full"}
        The accuracy class of NUM-3 that applies in half precision. The loosest class,
        ``storage``, is a variant of NUM-5.
    profile : str
        How it computes matrix products, if not in the working precision: a name in
        `attnspec.reference.budget.arithmetic.PROFILES`.
    versions : str
        The library releases to which dialect and deviations apply, as a version specifier such as
        ``>=2.13,<2.14``; empty for all. For another release, `load` leaves them out.
    notes : tuple of str
        Notes for reports.
    cases : frozenset of str
        The names of the cases for which it has answers; empty for all.
    constraints : Constraints
        Constraints on calls of attention. Generated cases fit them.
    given : tuple of str
        Options of attention that every call passes, because it has no default for them, or another
        default than the specification. Rules about the default are not asked of it.
    ignore : tuple of str
        Parameters of its functions that are not in the specification and are never passed.
    not_understood : tuple of str
        Other such parameters, as `load` finds them. If there are any, the run fails.
    claims : tuple of str
        Rules that it claims, some of `attnspec.claimable`. A claimed rule is judged like a MUST.
    concurrent : bool
        Whether its functions can be called from several threads at once (ERR-13).

    Examples
    --------
    >>> from attnspec.backends import load
    >>> backend = load("numpy-portable")
    >>> backend.library, backend.has("attention", "is_causal")
    ('numpy', True)
    """

    name: str
    array_library: Library
    attention: Callable[..., Any] = no_attention
    dtypes: tuple[str, ...] = ("float32", "float64")
    companions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    dialect: Mapping[str, Any] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    device: str = ""
    accuracy: str = "cast"
    profile: str = ""
    versions: str = ""
    notes: tuple[str, ...] = ()
    cases: frozenset[str] = frozenset()
    constraints: Constraints = field(default_factory=Constraints)
    given: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    not_understood: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    concurrent: bool = True

    @property
    def library(self) -> str:
        """The name of its library."""
        return self.array_library.name

    @property
    def version(self) -> str:
        """The version of its library."""
        return self.array_library.version

    @property
    def xp(self) -> Any:
        """The array namespace of its library."""
        return self.array_library.xp

    def function(self, operation: str) -> Callable[..., Any] | None:
        """Return the function for an operation, or None.

        Gradients are computed by the library, unless there is a function for them.
        """
        if operation == "attention":
            return None if self.attention is no_attention else self.attention
        if operation in self.companions or operation == primal(operation):
            return self.companions.get(operation)
        whole = self.function(primal(operation))
        return None if whole is None else gradients_of(whole, self.array_library, operation)

    def with_function(self, operation: str, function: Callable[..., Any]) -> "Backend":
        """Return the same backend with another function for an operation."""
        if operation == "attention":
            return replace(self, attention=function)
        return replace(self, companions={**self.companions, operation: function})

    def has(self, operation: str, argument: str) -> bool:
        """Whether the backend has the operation and its function takes the argument."""
        function = self.function(operation)
        return function is not None and argument in parameters(function)

    def to_library(self, array: NDArray[Any]) -> Any:
        """Copy an array into the library."""
        # Row-major: with another layout a library may silently use another kernel.
        return self.array_library.to_library(np.array(array, order="C"), self.device)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Copy an array of the library to NumPy.

        Raises
        ------
        TypeError
            If it is not an array.
        ValueError
            If it is on the wrong device.
        """
        return self.to_numpy_all([array])[0]

    def to_numpy_all(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Copy arrays of the library to NumPy; lazy arrays are computed together.

        Raises
        ------
        TypeError, ValueError
            As `to_numpy`.
        """
        for array in arrays:
            if not hasattr(array, "shape") or not hasattr(array, "dtype"):
                raise TypeError(f"expected an array, got {type(array).__name__}")
        computed = self.array_library.compute(arrays)
        return [self.array_library.to_numpy(array, self.device) for array in computed]


def in_one_dtype(backend: Backend, dtype: str) -> Backend:
    """Return a backend with the variants that it shows in a dtype."""
    if all(isinstance(said, str) for said in backend.dialect.values()):
        return backend
    return replace(backend, dialect=in_dtype(backend.dialect, dtype))


def for_release(backend: Backend) -> Backend:
    """Remove declarations for other releases than the installed one, and add a note."""
    hold = not backend.versions or holds(backend.versions, backend.version)
    dialect = backend.dialect if hold else {}
    deviations = tuple(
        deviation
        for deviation in backend.deviations
        if (holds(deviation.versions, backend.version) if deviation.versions else hold)
    )
    gone = [] if hold or not backend.dialect else [backend.versions]
    gone += [x.versions or backend.versions for x in backend.deviations if x not in deviations]
    if not gone:
        return backend
    said = "no deviation is" if not dialect and not deviations else "not every deviation is"
    note = (
        f"{said} declared for {backend.library} {backend.version} "
        f"(declarations are for {', or '.join(dict.fromkeys(gone))})"
    )
    return replace(backend, dialect=dialect, deviations=deviations, notes=(*backend.notes, note))


def with_declarations_noted(backend: Backend) -> Backend:
    """Add notes on the profile and on the claims of a backend."""
    said = [f"judged with the budget of profile {backend.profile}"] if backend.profile else []
    said += [f"claims {', '.join(backend.claims)}"] if backend.claims else []
    return replace(backend, notes=(*backend.notes, *said)) if said else backend


def parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Return the parameter names of a function; cached, because every call needs them."""
    try:
        return _known_parameters(function)
    except TypeError:  # a callable object may not be hashable
        return _known_parameters.__wrapped__(function)


@lru_cache(maxsize=64)
def _known_parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def results_of(returned: Any, count: int) -> Any:
    """Return the results of a call that has so many: one may be alone, or in a tuple or list (SHAPE-10)."""
    packed = isinstance(returned, tuple | list) and len(returned) == 1
    return [returned] if count == 1 and not packed else returned


def gradients_of(
    function: Callable[..., Any], library: Library, operation: str = "attention_vjp"
) -> Callable[..., Any] | None:
    """Make the function that computes the gradients of another; None if the library cannot differentiate."""
    if library.differentiate is None:
        return None
    try:
        return _gradients_of(function, library, operation)
    except TypeError:  # a callable object may not be hashable
        return _gradients_of.__wrapped__(function, library, operation)


@lru_cache(maxsize=64)
def _gradients_of(function: Callable[..., Any], library: Library, operation: str) -> Callable[..., Any]:
    known = signature(function).parameters
    form, whole = OPERATIONS[operation], OPERATIONS[primal(operation)]
    without = getattr(function, "without_gradient", ())

    def vjp(*arrays: Any, d_lse: Any = None, **options: Any) -> Any:
        *given, d_first = arrays
        named = dict(zip(whole.arrays, given, strict=True))
        every = named | {name: value for name, value in options.items() if value is not None}
        of = [result.of for result in form.results if result.of in every and result.of not in without]
        fixed = {name: value for name, value in every.items() if name not in of}
        if d_lse is not None:
            fixed["return_lse"] = True
            dtypes = [str(getattr(x, "dtype", "")) for x in (d_first, d_lse)]
            if dtypes[0].endswith("float64") and dtypes[1].endswith("float32"):
                raise Unsupported("differentiation casts a cotangent to the dtype of its output")

        def run(*differentiated: Any) -> Any:
            call = {**fixed, **dict(zip(of, differentiated, strict=True))}
            positional = [call.pop(name) for name in whole.arrays]
            return function(*positional, **call)

        cotangents = [d_first] if d_lse is None else [d_first, d_lse]
        gradients = _differentiate(library, run, [every[name] for name in of], cotangents)
        return gradients if len(gradients) > 1 else gradients[0]

    names = [*form.arrays, *(name for name in form.options if name in known or _asks(name, known))]
    parameters = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD)
        if name in form.arrays
        else Parameter(name, Parameter.KEYWORD_ONLY, default=_default(form.arguments[name]))
        for name in names
    ]
    vjp.__name__ = vjp.__qualname__ = operation
    vjp.without_gradient = without  # type: ignore[attr-defined] # the judge expects no such result
    vjp.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    vjp.__signature__ = signature(function).replace(parameters=parameters)  # type: ignore[attr-defined] # read by inspect
    return vjp


def _default(argument: Argument) -> Any:
    return Parameter.empty if argument.required else argument.default


def _asks(name: str, known: Any) -> bool:
    """Whether a name is the cotangent of an output that the function returns if asked."""
    return name.startswith("d_") and f"return_{name.removeprefix('d_')}" in known


def _differentiate(
    library: Library, run: Callable[..., Any], arrays: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[Any, ...]:
    assert library.differentiate is not None  # noqa: S101 - for the type checker: asked for before
    return tuple(library.differentiate(run, arrays, cotangents))

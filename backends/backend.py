"""A backend: one implementation behind the one signature."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.backends.constraints import Constraints
from attnspec.backends.deviation import Deviation, holds
from attnspec.backends.library.library import Library


@dataclass(frozen=True)
class Backend:
    """One implementation, with what it supports and how it deviates.

    Attributes
    ----------
    name : str
        By which it is asked for.
    array_library : Library
        What it runs on, as `attnspec.backends.load_library` gives it.
    attention : callable
        The operator, with canonical names. **Its signature is its list of
        capabilities**: an argument that it does not have is unsupported.
    dtypes : tuple of str
        The dtypes it takes, some of `DTYPES`.
    companions : mapping of str to callable
        Other operations of the standard that it has, by name.
    dialect : mapping of str to str
        Rule id to the variant of that rule which it shows. Declared is not
        excused: the suite verifies the variant.
    deviations : tuple of Deviation
        What it does against a rule where no variant says so.
    device : str
        Where its arrays are put and expected, as the library names it; empty for
        where the library puts them.
    accuracy : {"cast", "full"}
        The class of NUM-3 that it is held to in half precision. The loosest,
        ``storage``, is a variant of NUM-5.
    profile : str
        How it computes products of matrices, where not in the working precision: a
        name in `attnspec.reference.budget.profile.PROFILES`.
    versions : str
        The releases of the library for which dialect and deviations are declared, as pip writes a
        range, such as ``>=2.13,<2.14``; all where empty. `load` leaves out what is declared for others.
    notes : tuple of str
        What a report should say of it.
    cases : frozenset of str
        The names of the cases that it has answers to; all where empty.
    constraints : Constraints
        Which calls of attention it takes at all; problems are drawn to fit them.
    given : tuple of str
        Options of attention that it is always given, as it has no default for them, or another than
        the standard's: rules about the default are not asked of it.
    ignore : tuple of str
        Parameters of its functions that the standard does not have, let alone on purpose.
    not_understood : tuple of str
        Other such parameters, as `load` finds them: a run of it has to fail.

    Examples
    --------
    >>> from attnspec.backends import load
    >>> backend = load("numpy-portable")
    >>> backend.library, backend.has("attention", "is_causal")
    ('numpy', True)
    """

    name: str
    array_library: Library
    attention: Callable[..., Any]
    dtypes: tuple[str, ...] = ("float32", "float64")
    companions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    dialect: Mapping[str, str] = field(default_factory=dict)
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
        """Return the function for an operation, None where there is none."""
        return self.attention if operation == "attention" else self.companions.get(operation)

    def has(self, operation: str, argument: str) -> bool:
        """Whether the operation is there and takes that argument by name."""
        function = self.function(operation)
        return function is not None and argument in _parameters(function)

    def to_library(self, array: NDArray[Any]) -> Any:
        """Copy an array into the library."""
        # In rows: a fused kernel may take no other layout, and another one would be tried in its stead.
        return self.array_library.to_library(np.array(array, order="C"), self.device)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Copy an array of the library out of it.

        Raises
        ------
        TypeError
            When it is no array at all.
        ValueError
            When it is on another device than was given.
        """
        return self.to_numpy_all([array])[0]

    def to_numpy_all(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Copy arrays out of the library together: what lazy ones share is computed once.

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


def for_release(backend: Backend) -> Backend:
    """Leave out what is declared for other releases than the one that is there, and note that.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from attnspec.backends import load
    >>> from attnspec.backends.backend import for_release
    >>> older = replace(load("numpy-portable"), dialect={"MASK-6": "nan"}, versions=">=1.0,<1.1")
    >>> for_release(older).dialect, for_release(older).notes  # doctest: +ELLIPSIS
    ({}, ('nothing is declared for numpy 2... (declarations hold for >=1.0,<1.1)',))
    """
    hold = holds(backend.versions, backend.version)
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
    said = "nothing is" if not dialect and not deviations else "not all is"
    note = (
        f"{said} declared for {backend.library} {backend.version} "
        f"(declarations hold for {', or '.join(dict.fromkeys(gone))})"
    )
    return replace(backend, dialect=dialect, deviations=deviations, notes=(*backend.notes, note))


def with_profile_noted(backend: Backend) -> Backend:
    """Note the profile by which a backend is judged.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from attnspec.backends import load
    >>> from attnspec.backends.backend import with_profile_noted
    >>> with_profile_noted(replace(load("numpy-portable"), profile="tf32")).notes
    ('its budget is that of the profile tf32',)
    """
    if not backend.profile:
        return backend
    return replace(backend, notes=(*backend.notes, f"its budget is that of the profile {backend.profile}"))


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Name the parameters of a function: asked for at every call, and slow to find."""
    try:
        return _known_parameters(function)
    except TypeError:  # an object that cannot be hashed may be called all the same
        return _known_parameters.__wrapped__(function)


@lru_cache(maxsize=64)
def _known_parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)

"""A backend: one implementation behind the one signature."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, rules
from attnspec.backends.errors import BackendError

#: Every dtype of the standard.
DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Deviation:
    """What an implementation is known to do against a rule, without a variant that says it.

    It is as narrow as possible: what it does not cover is a failure as ever. It has to
    show in every whole run of the suite.

    Attributes
    ----------
    rules : tuple of str
        The rule that is broken, and others to which the suite may trace the same thing.
    reason : str
        What happens instead, in a few words.
    source : str
        A script in ``backends/findings`` that shows it with the library alone, or a link.
    dtypes, outputs : tuple of str
        Those that it shows in; all where empty.
    groups : tuple of str
        Those groups of cases that show it; all where empty.
    when : callable, optional
        Tells whether a call, by its arguments, is one of those that show it.

    Examples
    --------
    >>> from attnspec.backends import Deviation
    >>> Deviation(("ERR-6",), "any scale is taken", "torch/scale_not_finite").id
    'ERR-6 torch/scale_not_finite'
    """

    rules: tuple[str, ...]
    reason: str
    source: str
    dtypes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    when: Callable[[Mapping[str, Any]], bool] | None = None

    @property
    def id(self) -> str:
        """By which it is told from others of the same backend."""
        return f"{self.rules[0]} {self.source}"


def has_infinite_score(arguments: Mapping[str, Any]) -> bool:
    """Tell whether a call of attention may have an infinite score, for deviations that are of such calls.

    Examples
    --------
    >>> from attnspec.backends.backend import has_infinite_score
    >>> has_infinite_score({"query": np.ones((1, 1)), "key": np.full((1, 1), np.inf)})
    True
    """
    arrays = [arguments[name] for name in ("query", "key", "bias") if name in arguments]
    return any(bool(np.isinf(array).any()) for array in arrays)


@dataclass(frozen=True)
class Backend:
    """One implementation, with what it supports and how it deviates.

    Attributes
    ----------
    name : str
        By which it is asked for.
    library, version : str
        What it runs on.
    xp : module
        The library's array namespace, as array-api-compat gives it.
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
    cases : frozenset of str
        The names of the cases that it has answers to; all where empty.

    Examples
    --------
    >>> from attnspec.backends import load
    >>> backend = load("numpy-portable")
    >>> backend.has("attention", "is_causal")
    True
    """

    name: str
    library: str
    version: str
    xp: Any
    attention: Callable[..., Any]
    dtypes: tuple[str, ...] = ("float32", "float64")
    companions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    dialect: Mapping[str, str] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    device: str = ""
    accuracy: str = "cast"
    cases: frozenset[str] = frozenset()

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
        copy = np.array(array, order="C")
        if self.library == "jax":
            import jax

            # Not `jnp.asarray`, which compiles an identity for every shape.
            return jax.device_put(copy, jax.devices(self.device)[0] if self.device else None)
        if self.library == "torch" and array.dtype.name == "bfloat16":
            # NumPy and PyTorch share no type for it, but its bits.
            placed = self.xp.asarray(copy.view(np.int16)).view(self.xp.bfloat16)
        else:
            placed = self.xp.asarray(copy)
        return array_api_compat.to_device(placed, self.device) if self.device else placed

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Copy an array of the library out of it.

        Raises
        ------
        TypeError
            When it is no array at all.
        ValueError
            When it is on another device than was given.
        """
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(f"expected an array, got {type(array).__name__}")
        if self.library == "torch":
            expected = self.device.partition(":")[0] or "cpu"
            if array.device.type != expected:
                raise ValueError(f"on {array.device.type}, expected on {expected}")
            array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":
            return np.asarray(array.view(self.xp.int16)).copy().view("bfloat16")
        if hasattr(array, "compute"):
            # A lazy call is run here, and is judged by its results, not by what it warns of.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array = array.compute()
        # Not `np.array(array)`: asked for a copy, PyTorch's `__array__` draws a deprecation warning.
        return np.asarray(array).copy()


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Name the parameters of a function: asked for at every call, and slow to find."""
    try:
        return _known_parameters(function)
    except TypeError:  # an object that cannot be hashed may be called all the same
        return _known_parameters.__wrapped__(function)


@lru_cache(maxsize=64)
def _known_parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def check_backend(name: str, backend: Backend) -> None:
    """Refuse a backend whose fields say nothing that the standard knows.

    Raises
    ------
    BackendError
        Naming the field, what it got and what was expected.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from attnspec.backends import load
    >>> from attnspec.backends.backend import check_backend
    >>> own = replace(load("numpy-portable"), dtypes=("float31",))
    >>> check_backend("mine:b", own)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    attnspec.backends.errors.BackendError: backend mine:b: dtypes: expected some of float16, ...
    """
    check_signature(name, backend.attention)
    if not isinstance(backend.dtypes, tuple) or not backend.dtypes or not set(backend.dtypes) <= set(DTYPES):
        raise BackendError(
            f"backend {name}: dtypes: expected some of {', '.join(DTYPES)}, got {backend.dtypes!r}"
        )
    if not hasattr(backend.xp, "asarray"):
        raise BackendError(f"backend {name}: xp: expected an array namespace, got {backend.xp!r}")
    if not isinstance(backend.companions, Mapping) or not set(backend.companions) <= set(OPERATIONS):
        raise BackendError(
            f"backend {name}: companions: expected functions by operation, got {backend.companions!r}"
        )
    if backend.accuracy not in ("cast", "full"):
        raise BackendError(f"backend {name}: accuracy: expected cast or full, got {backend.accuracy!r}")
    known = {(rule.id, variant.name) for rule in rules() for variant in rule.variants}
    if not isinstance(backend.dialect, Mapping) or not set(backend.dialect.items()) <= known:
        raise BackendError(f"backend {name}: dialect: expected variants by rule id, got {backend.dialect!r}")
    ids = {rule.id for rule in rules()}
    for deviation in backend.deviations:
        if not deviation.rules or not set(deviation.rules) <= ids or not deviation.source:
            raise BackendError(
                f"backend {name}: deviations: expected rule ids and a source, got {deviation!r}"
            )


def check_signature(name: str, function: Any) -> None:
    """Refuse a function that cannot be called as attention.

    Raises
    ------
    BackendError
        When it is no function, lacks an array, or requires an argument that the
        standard does not have.

    Examples
    --------
    >>> from attnspec.backends.backend import check_signature
    >>> check_signature("mine:f", lambda query, keys, value: 0)
    Traceback (most recent call last):
        ...
    attnspec.backends.errors.BackendError: backend mine:f: expected query, key, value, got query, keys, value
    """
    if not callable(function):
        raise BackendError(f"backend {name}: expected a function or a Backend, got {type(function).__name__}")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise BackendError(
            f"backend {name}: expected a function with a signature, got none ({error})"
        ) from error
    arrays = OPERATIONS["attention"].arrays
    known = set(arrays) | set(OPERATIONS["attention"].options)
    required = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not set(arrays) <= set(parameters) or not set(required) <= known:
        got = ", ".join(required) or "none"
        raise BackendError(f"backend {name}: expected {', '.join(arrays)}, got {got}")

"""Check the fields of a backend before it is judged."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec import OPERATIONS, claimable, rules
from attnspec.backends.backend import Backend
from attnspec.backends.constraints import Constraints
from attnspec.backends.deviation import is_range
from attnspec.backends.errors import BackendError
from attnspec.backends.preconditions import PRECONDITIONS
from attnspec.backends.user.signature import check_signature
from attnspec.dialect import fault_of
from attnspec.dtypes import DTYPES
from attnspec.reference.budget.arithmetic import PROFILES


def check_backend(name: str, backend: Backend) -> None:
    """Check the fields of a backend."""
    if backend.function("attention") is None and not backend.companions:
        raise BackendError(f"backend {name}: expected attention or companions, got neither")
    check_signature(name, backend.attention)
    if not isinstance(backend.dtypes, tuple) or not backend.dtypes or not set(backend.dtypes) <= set(DTYPES):
        raise BackendError(
            f"backend {name}: dtypes: expected some of {', '.join(DTYPES)}, got {backend.dtypes!r}"
        )
    xp = getattr(backend.array_library, "xp", None)
    if not hasattr(xp, "asarray"):
        raise BackendError(
            f"backend {name}: array_library: expected a Library with an array namespace, "
            f"got {backend.array_library if xp is None else xp!r}"
        )
    if not isinstance(backend.companions, Mapping) or not set(backend.companions) <= set(OPERATIONS):
        raise BackendError(
            f"backend {name}: companions: expected functions by operation, got {backend.companions!r}"
        )
    if backend.accuracy not in ("cast", "full"):
        raise BackendError(f"backend {name}: accuracy: expected cast or full, got {backend.accuracy!r}")
    if backend.profile not in ("", *PROFILES):
        raise BackendError(
            f"backend {name}: profile: expected one of {', '.join(PROFILES)}, got {backend.profile!r}"
        )
    if not _are_words(backend.ignore):
        raise BackendError(
            f'backend {name}: ignore: expected names of parameters, such as ("enable_gqa",), '
            f"got {backend.ignore!r}"
        )
    if not isinstance(backend.concurrent, bool):
        raise BackendError(f"backend {name}: concurrent: expected True or False, got {backend.concurrent!r}")
    check_constraints(name, backend.constraints)
    _check_declarations(name, backend)
    _check_claims(name, backend)


def check_constraints(name: str, constraints: Constraints) -> None:
    """Check the fields of constraints."""
    flags = tuple(
        key for key, argument in OPERATIONS["attention"].arguments.items() if argument.kind == "flag"
    )
    numbers = (*constraints.depths, *constraints.multiple)
    for field, got, good, expected in (
        ("axes", constraints.axes, constraints.axes in (None, 3, 4), "3 or 4"),
        ("depths and multiple", numbers, all(type(x) is int and x > 0 for x in numbers), "positive integers"),
        ("heads", constraints.heads, constraints.heads in ("grouped", "equal"), "grouped or equal"),
        (
            "lengths",
            constraints.lengths,
            constraints.lengths in ("any", "equal", "enough"),
            "any, equal or enough",
        ),
        ("value_depth", constraints.value_depth, constraints.value_depth in ("any", "key"), "any or key"),
        (
            "requires",
            list(constraints.requires),
            all(word in PRECONDITIONS for word in constraints.requires),
            f"some of {', '.join(PRECONDITIONS)}",
        ),
        ("bias_dtype", constraints.bias_dtype, constraints.bias_dtype in ("any", "query"), "any or query"),
        (
            "always",
            dict(constraints.always),
            all(key in flags and value is True for key, value in constraints.always.items()),
            "flags that are true, such as is_causal",
        ),
    ):
        if not good:
            raise BackendError(f"backend {name}: {field}: expected {expected}, got {got!r}")


def _are_words(names: Any) -> bool:
    return isinstance(names, tuple) and all(isinstance(name, str) for name in names)


def _check_declarations(name: str, backend: Backend) -> None:
    known = {rule.id: tuple(variant.name for variant in rule.variants) for rule in rules() if rule.variants}
    # Not the dtypes of the backend: a run may ask for some of them, and the dialect says all that is known.
    if backend.dialect and (fault := fault_of(backend.dialect, known, tuple(DTYPES))):
        raise BackendError(f"backend {name}: dialect: {fault}")
    ids = {rule.id for rule in rules()}
    for deviation in backend.deviations:
        if not deviation.rules or not set(deviation.rules) <= ids or not deviation.source:
            raise BackendError(
                f"backend {name}: deviations: expected rule ids and a source, got {deviation!r}"
            )
    for versions in (backend.versions, *(deviation.versions for deviation in backend.deviations)):
        if versions and not is_range(versions):
            raise BackendError(
                f"backend {name}: versions: expected a range such as >=2.13,<2.14, got {versions!r}"
            )


def _check_claims(name: str, backend: Backend) -> None:
    claims = backend.claims
    words = _are_words(claims)
    wrong = [claim for claim in claims if claim not in claimable()] if words else [repr(claims)]
    if wrong:
        expected = f"{'' if words else 'a tuple of '}some of {', '.join(claimable())}"
        raise BackendError(f"backend {name}: claims: expected {expected}, got {', '.join(wrong)}")
    for deviation in backend.deviations:
        if both := set(claims) & set(deviation.rules):
            raise BackendError(
                f"backend {name}: claims: expected rules without a declared deviation, got {', '.join(both)}"
            )


def check_device(backend: Backend) -> None:
    """Check that the library can put an array on the device."""
    try:
        backend.to_library(np.ones(1, backend.dtypes[0]))
    except Exception as error:  # whatever a library raises
        lines = str(error).splitlines() or [type(error).__name__]
        raise BackendError(
            f"backend {backend.name}: expected {backend.library} to take {backend.dtypes[0]} "
            f"on device {backend.device or 'default'}, got {lines[0]}"
        ) from error

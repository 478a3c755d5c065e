"""Tells by a few calls whether a function returns on a device, where each may be compiled for seconds."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.errors import BackendError
from attnspec.backends.user.companion_probe import first_calls
from attnspec.backends.user.description import Known, dtypes_of
from attnspec.backends.user.probe import DEPTHS, FEW_DEPTHS, Probe

#: The number of conventions of a companion that are tried.
_FEW = 6


def takes_a_call(backend: Backend, operation: str, function: Callable[..., Any], known: Known) -> bool:
    """Whether one of a few plain calls returns, of the first dtype and in half precision.

    Where none can be made, another device takes none either.
    """
    dtypes, depths = dtypes_of(backend, known), known.depths or DEPTHS
    short = "float16" if "float16" in dtypes else dtypes[-1]
    if operation in ("", "attention"):
        usual = FEW_DEPTHS[-1] if FEW_DEPTHS[-1] in depths else depths[-1]
        pairs = dict.fromkeys(((dtypes[0], depths[0]), (dtypes[0], usual), (short, usual)))
        return any(Probe(backend, function, known, {}, depth, dtype).is_taken() for dtype, depth in pairs)
    if not has_names(backend, operation, function, known):
        return True
    calls, named, names, _ = first_calls(backend, operation, function, known)
    return any(
        calls.distance(convention, calls.draw(convention, 2, dtype)) is not None
        for dtype in dict.fromkeys((dtypes[0], short))
        for convention in islice(calls.conventions(named, names, known), _FEW)
    )


def has_names(backend: Backend, operation: str, function: Callable[..., Any], known: Known) -> bool:
    """Whether a function has a parameter for each required argument of an operation."""
    try:
        first_calls(backend, operation, function, known)
    except BackendError:
        return False
    return True

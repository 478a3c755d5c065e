"""Parameters of a function that say the contrary of an argument, or have one value in every call."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnspec.backends.captured import pass_on
from attnspec.backends.errors import BackendError


def with_own_values(
    name: str, function: Callable[..., Any], inverse: Sequence[str], fixed: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function that takes the contrary of some flags, and passes the values of other parameters.

    The default of a flag is then its contrary too. What is fixed is no parameter any more.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters
    for key, named in (("inverse", inverse), ("fixed", fixed)):
        if absent := [own for own in named if own not in parameters]:
            got = ", ".join(parameters) or "none"
            raise BackendError(
                f"backend {name}: {key}: expected parameters of it, got {', '.join(absent)}; it has {got}"
            )
    if not inverse and not fixed:
        return function

    def run(*arrays: Any, **options: Any) -> Any:
        turned = {own: not x if own in inverse else x for own, x in options.items()}
        return function(*arrays, **turned, **fixed)

    left = [
        parameter.replace(default=not parameter.default)
        if own in inverse and parameter.default is not parameter.empty
        else parameter
        for own, parameter in parameters.items()
        if own not in fixed
    ]
    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    run.__module__ = function.__module__
    run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined] # read by inspect
    pass_on(run, function, lambda fresh: with_own_values(name, fresh, inverse, fixed))
    return run

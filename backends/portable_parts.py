"""The parts of the portable source that look at shapes and never at numbers: they can be compiled whole.

A library that compiles every operation for every shape, as JAX does, takes most of
its time for that; a part is compiled once for a shape.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Protocol


class Part(Protocol):
    """A namespace and its arrays in, arrays out."""

    def __call__(self, xp: Any, *arrays: Any) -> Any:
        """Compute."""


_COMPILERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {}


def compile_parts(xp: Any, compiler: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Have the parts compiled when they are called with this namespace; elsewhere they run as they stand."""
    _COMPILERS[xp.__name__] = compiler


def part(function: Part) -> Part:
    """Mark a function that takes a namespace and, for the rest, arrays and numbers that may be traced."""

    @cache
    def compiled(name: str, xp: Any) -> Callable[..., Any]:
        return _COMPILERS[name](partial(function, xp))

    def run(xp: Any, *arrays: Any) -> Any:
        if xp.__name__ in _COMPILERS:
            return compiled(xp.__name__, xp)(*arrays)
        return function(xp, *arrays)

    return run

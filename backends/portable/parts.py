"""The parts of the portable source that look at shapes and never at numbers: they can be compiled whole.

A library that compiles every operation for every shape, as JAX does, takes most of
its time for that; a part is compiled once for a shape.
"""

from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any, Protocol


class Part(Protocol):
    """A namespace and its arrays in, arrays out."""

    def __call__(self, xp: Any, *arrays: Any) -> Any:
        """Compute."""


Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]

#: By array namespace.
_COMPILERS: dict[Any, Compiler] = {}


def compile_parts(xp: Any, compiler: Compiler) -> None:
    """Have the parts compiled when they are called with this namespace; elsewhere they run as they stand."""
    _COMPILERS[xp] = compiler


def part(function: Part) -> Part:
    """Mark a function that takes a namespace and, for the rest, arrays and numbers that may be traced."""

    @cache
    def compiled(xp: Any) -> Callable[..., Any]:
        return _COMPILERS[xp](partial(function, xp))

    @wraps(function)
    def run(xp: Any, *arrays: Any) -> Any:
        return compiled(xp)(*arrays) if xp in _COMPILERS else function(xp, *arrays)

    return run

"""Calls that are captured once and replayed (ERR-20). The reference captures nothing but the arguments."""

from collections.abc import Callable
from typing import Any

from array_api_compat import array_namespace, is_array_api_obj

from attnspec.reference.call import Arguments, Call, Steps, step


@step
def replay(_call: Call, _kept: Arguments, arguments: Arguments) -> Arguments:
    """Return the arguments that a replay computes with: those that its arrays hold now (ERR-20)."""
    return arguments


def captures(run: Callable[..., Any], bind: Callable[..., Arguments], steps: Steps) -> Callable[..., Any]:
    """Return a function that makes functions. Each keeps a copy of the arguments of its first call."""

    def capture() -> Callable[..., Any]:
        kept: Arguments = {}

        def again(*arrays: Any, **options: Any) -> Any:
            arguments = bind(arrays, options)
            if not kept:
                kept.update({name: _copy(x) for name, x in arguments.items()})
            xp = array_namespace(*(x for x in arguments.values() if is_array_api_obj(x)))
            return run(**replay(Call(steps, xp, None), kept, arguments))

        return again

    return capture


def _copy(x: Any) -> Any:
    return array_namespace(x).asarray(x, copy=True) if is_array_api_obj(x) else x

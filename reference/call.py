"""Calls, and the steps that they are made of: any step can be replaced by another of its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from array_api_compat import is_array_api_obj

#: An array of any library that has the Array API.
Array = Any
#: An array of booleans; True alone where nothing is disallowed.
Mask = Any
Step = Callable[..., Any]
#: The arguments of an operation, by their canonical names.
Given = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Steps:
    """How the steps of an implementation are taken.

    Attributes
    ----------
    replaced : mapping of str to callable
        What is taken instead of the step of that name. Inside of it the name means the original.
    compiler : callable, optional
        What makes one function of a part, as ``jax.jit`` does; without it operations run one by one.
    constant : callable, optional
        What makes an array one that no derivative goes through, as ``jax.lax.stop_gradient`` does.
    memory : dict
        Lives as long as the implementation, for replaced steps to write to.
    compiled : dict
        The parts that have been compiled.
    """

    replaced: Mapping[str, Step] = field(default_factory=dict)
    compiler: Callable[[Step], Step] | None = None
    constant: Callable[[Array], Array] | None = None
    memory: dict[Any, Any] = field(default_factory=dict)
    compiled: dict[Any, Step] = field(default_factory=dict)

    def without(self, name: str) -> "Steps":
        """Take the original of one step again."""
        others = {other: step for other, step in self.replaced.items() if other != name}
        return replace(self, replaced=others)


@dataclass(frozen=True)
class Call:
    """One call of an operation.

    Attributes
    ----------
    steps : Steps
    xp : module
        Array namespace of the arguments.
    dtype : data type or None
        Working precision and dtype of the results, where they are not those of the arguments.
    """

    steps: Steps
    xp: Any
    dtype: Any

    def but(self, **changes: Any) -> Self:
        """Make the same call with some fields changed."""
        unknown = changes.keys() - vars(self).keys()
        if unknown:
            raise TypeError(f"fields: expected some of {', '.join(vars(self))}, got {', '.join(unknown)}")
        # Not `dataclasses.replace`, which takes a while, and a call is changed some ten times.
        other = object.__new__(type(self))
        vars(other).update(vars(self) | changes)
        return other


C = TypeVar("C", bound=Call)
P = ParamSpec("P")
R = TypeVar("R")

#: Every step, by name.
STEPS: dict[str, Step] = {}


def step(function: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Make a function of a call one that can be replaced.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import functions
    >>> unscaled = functions({"factor": lambda call: 1.0})["scores"]
    >>> unscaled(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """
    name = function.__name__

    @wraps(function)
    def take(call: C, /, *rest: P.args, **options: P.kwargs) -> R:
        other = call.steps.replaced.get(name)
        if other is None:
            return function(call, *rest, **options)
        taken: R = other(call.but(steps=call.steps.without(name)), *rest, **options)
        return taken

    STEPS[name] = take
    return take


def part(function: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Mark a function that looks at shapes and never at numbers: it can be compiled whole.

    A library that compiles every operation for every shape, as JAX does, takes most of its time
    for that. Arrays and fractions may be others in the next call; for anything else, integers
    among it, the part is compiled anew.
    """

    @wraps(function)
    def run(call: C, /, *rest: P.args, **options: P.kwargs) -> R:
        compiler = call.steps.compiler
        if compiler is None:
            return function(call, *rest, **options)
        known = {f"call.{each.name}": getattr(call, each.name) for each in fields(call)}
        known |= {str(place): thing for place, thing in enumerate(rest)} | options
        moving = {name: thing for name, thing in known.items() if _moves(thing)}
        fixed = {name: thing for name, thing in known.items() if name not in moving}
        key = (function, type(call), *fixed.items())
        if key not in call.steps.compiled:

            def whole(moving: dict[str, Any]) -> R:
                every = fixed | moving
                again = type(call)(**{each.name: every.pop(f"call.{each.name}") for each in fields(call)})
                places = [every.pop(str(place)) for place in range(len(rest))]
                return function(again, *places, **every)

            call.steps.compiled[key] = compiler(whole)
        result: R = call.steps.compiled[key](moving)
        return result

    return run


def _moves(thing: Any) -> bool:
    return isinstance(thing, float) or is_array_api_obj(thing)

"""Calls and their steps. A step can be replaced by another function of the same name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from inspect import getfile, unwrap
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from array_api_compat import is_array_api_obj

#: An array of any library that implements the Array API.
Array = Any
#: An array of booleans, or True if nothing is disallowed.
Mask = Any
Step = Callable[..., Any]
#: The arguments of an operation, by their canonical names.
Arguments = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Steps:
    """How an implementation runs its steps."""

    #: Replacements by the name of the step. Inside a replacement, the name means the original step.
    replaced: Mapping[str, Step] = field(default_factory=dict)
    #: Compiles a part into one function, as ``jax.jit`` does. Without it operations run one by one.
    compiler: Callable[[Step], Step] | None = None
    #: Returns an array through which no derivative flows, as ``jax.lax.stop_gradient`` does.
    constant: Callable[[Array], Array] | None = None
    #: State for replaced steps. It lives as long as the implementation.
    memory: dict[Any, Any] = field(default_factory=dict)
    compiled: dict[Any, Step] = field(default_factory=dict)  # the compiled parts

    def without(self, name: str) -> "Steps":
        """Restore the original of one step."""
        others = {other: step for other, step in self.replaced.items() if other != name}
        return replace(self, replaced=others)


@dataclass(frozen=True)
class Call:
    """One call of an operation."""

    steps: Steps
    xp: Any  # array namespace of the arguments
    dtype: Any  # working precision and dtype of the results, if they are not those of the arguments

    def but(self, **changes: Any) -> Self:
        """Return the same call with some fields changed."""
        unknown = changes.keys() - vars(self).keys()
        if unknown:
            raise TypeError(f"fields: expected some of {', '.join(vars(self))}, got {', '.join(unknown)}")
        # `dataclasses.replace` is slow, and each call is changed about ten times.
        other = object.__new__(type(self))
        vars(other).update(vars(self) | changes)
        return other


C = TypeVar("C", bound=Call)
P = ParamSpec("P")
R = TypeVar("R")

#: Every step, by name.
STEPS: dict[str, Step] = {}


def step(function: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Mark a function of a call as a step, which can be replaced."""
    name = function.__name__
    known = STEPS.get(name)
    if known is not None and _origin(known) != _origin(function):
        raise ValueError(
            f"step: expected a name that no other step has, got {name!r} for {_origin(function)}; "
            f"{_origin(known)} has it"
        )

    @wraps(function)
    def take(call: C, /, *rest: P.args, **options: P.kwargs) -> R:
        other = call.steps.replaced.get(name)
        if other is None:
            return function(call, *rest, **options)
        taken: R = other(call.but(steps=call.steps.without(name)), *rest, **options)
        return taken

    STEPS[name] = take
    return take


def _origin(function: Step) -> str:
    """Return where a function is defined: its file, without links, and its name in the file."""
    original = unwrap(function)
    return f"{Path(getfile(original)).resolve()}:{original.__qualname__}"


def part(function: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Mark a function that reads shapes but no values, so that it can be compiled as a whole.

    A library that compiles every operation for every shape, as JAX does, spends most of its time
    on compilation. Arrays and floats may differ in the next call. If anything else differs,
    integers included, the part is compiled again.
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
    return isinstance(thing, float) or is_moving(thing)


def is_moving(thing: Any) -> bool:
    """Whether an argument is an array, whose numbers may differ in the next call of a compiled function."""
    return bool(is_array_api_obj(thing))

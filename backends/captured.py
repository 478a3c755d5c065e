"""Calls that are captured or compiled once, and replayed with other numbers in their arrays (ERR-20)."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.errors import Unsupported
from attnspec.reference.call import is_moving

Function = Callable[..., Any]


def capture(backend: Backend, operation: str) -> Function | None:
    """Return a function whose first call is captured and whose later ones replay it; None if there is none.

    A function offers it as its attribute `captured`, which takes no arguments. Otherwise its library
    compiles it.
    """
    function = backend.function(operation)
    own = getattr(function, "captured", None)
    if own is not None:
        return _fresh(own, function)
    compiler = backend.array_library.capture
    return None if function is None or compiler is None else _compile(function, compiler)


def pass_on(run: Function, function: Function, adapt: Callable[[Function], Function]) -> None:
    """Offer the captured calls of a function for one that is adapted from it."""
    own = getattr(function, "captured", None)
    if own is not None:
        run.captured = lambda: adapt(_fresh(own, function))  # type: ignore[attr-defined] # read by `capture`


def _fresh(own: Callable[[], Function], function: Any) -> Function:
    made = own()

    @wraps(function)
    def run(*arrays: Any, **options: Any) -> Any:
        return made(*arrays, **options)

    run.__signature__ = signature(function)  # type: ignore[attr-defined] # read by inspect
    return run


def _compile(function: Function, compiler: Callable[[Function], Function]) -> Function:
    """Compile a function of its arrays. All else is fixed by the first call."""
    compiled: list[Function] = []

    def run(*arrays: Any, **options: Any) -> Any:
        moving = {name: x for name, x in options.items() if is_moving(x)}
        if not compiled:
            fixed = {name: x for name, x in options.items() if name not in moving}
            compiled.append(compiler(lambda arrays, moving: function(*arrays, **moving, **fixed)))
        return compiled[0](arrays, moving)

    return run


def replay_backend(backend: Backend, operation: str) -> Backend:
    """Make a backend that captures the first call of each set of options, and replays it in its arrays.

    Numbers are written into the arrays of the first call where the library can write them.
    """
    function = backend.function(operation)
    assert function is not None  # noqa: S101 - for the type checker: the caller has captured one
    names = list(signature(function).parameters)
    known: dict[str, tuple[Function, dict[str, Any]]] = {}

    @wraps(function)
    def run(*arrays: Any, **options: Any) -> Any:
        given = dict(zip(names, arrays, strict=False)) | options
        moving = {name: x for name, x in given.items() if is_moving(x)}
        shapes = {name: (tuple(x.shape), str(x.dtype)) for name, x in moving.items()}
        key = repr((shapes, [(name, x) for name, x in given.items() if name not in moving]))
        first = key not in known
        if first:
            made = capture(backend, operation)
            assert made is not None  # noqa: S101 - for the type checker: there was one above
            known[key] = made, moving
        replay, placed = known[key]
        placed = moving if first else {name: _write(placed[name], x) for name, x in moving.items()}
        now = given | placed
        own = [now.pop(name) for name in names[: len(arrays)]]
        try:
            return replay(*own, **now)
        except Exception as error:
            if not first:
                raise
            line = next(iter(str(error).splitlines()), type(error).__name__)
            raise Unsupported(f"{operation} cannot be captured: {line}") from error

    run.__signature__ = signature(function)  # type: ignore[attr-defined] # read by inspect
    return backend.with_function(operation, run)


def _write(place: Any, array: Any) -> Any:
    """Write numbers into an array, or return them in another one if the library writes none."""
    try:
        place[...] = array
    except (TypeError, ValueError, NotImplementedError):
        return array
    return place

"""Functions that no key describes, with a wrapper to judge instead: results in arguments, parts, prefixes."""

import inspect
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, library_of
from attnspec.operations.aliases import ALIASES, OF_COMPANIONS, meant

_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
#: The names of parameters for an array that the result is written into.
RESULTS = ("o", "out", "output")
_OF_RESULT = """
import {package} as xp
import {module} as kernels


def attention({signature}):
    {result} = xp.empty_like({query})  # it has the depth of the values
    kernels.{function}({arguments})
    return {result}
"""

_OF_FIELDS = """
import {package}  # its arrays are passed
import {module} as kernels


def {function}({signature}):
    {result} = kernels.{made}({fields})
    return kernels.{function}({arguments})
"""

#: The names of parameters for the number of first keys that every query may attend to.
_PREFIXES = re.compile(r"(.*_)?(prefix|bidirectional)_?(len|length|size)(s|gths)?", re.IGNORECASE)
_OF_PREFIX = """
import {package} as xp
import {module} as kernels


def attention({signature}):
    length = 0 if is_causal else {key}.shape[1]  # of all keys; shape[2] where heads come before positions
    {result} = xp.full(({query}.shape[0],), length, dtype=xp.int32)  # without a prefix it is causal
    return kernels.{function}({arguments})
"""

#: The second and the fourth of two outputs, each with its lse.
_LSE = re.compile(r"(.*_)?lse(_.*)?|s_\w", re.IGNORECASE)
_OF_PARTS = """
from functools import reduce
from math import prod

import {module} as kernels


def merge_partials(outputs, lses, *, return_lse=False):  # (M, *B, H, L, Dv), (M, *B, H, L)
    outputs, lses = outputs.swapaxes(-3, -2), lses.swapaxes(-2, -1)  # for a kernel with heads after rows
    shape, rows = outputs.shape[1:], prod(outputs.shape[1:-2])
    parts = [(x.reshape(rows, *shape[-2:]), y.reshape(rows, shape[-2])) for x, y in zip(outputs, lses)]
    output, lse = reduce(lambda first, second: kernels.{function}(*first, *second)[:2], parts)
    output, lse = output.reshape(shape).swapaxes(-3, -2), lse.reshape(shape[:-1]).swapaxes(-2, -1)
    return (output, lse) if return_lse else output
"""


def fill_wrapper(
    wrapper: str,
    name: str,
    function: Callable[..., Any],
    given: Mapping[str, str],
    without: Container[str] = (),
    **more: str,
) -> str:
    """Return a wrapper that takes the arguments in `given`, those in `without` apart, and passes each.

    `given` has the expression of each parameter of the function, and `more` what else the wrapper needs.
    """
    place, _, attribute = name.partition("?")[0].rpartition(":")
    module = sys.modules.get(getattr(function, "__module__", ""))
    library = library_of(module) if module else "numpy"
    return wrapper.format(
        package={"jax": "jax.numpy"}.get(library, LIBRARIES.get(library, library)),
        module=Path(place).stem if place.endswith(".py") else place,
        first=attribute.partition(".")[0],
        signature=", ".join(
            given[x.name] if x.default is x.empty else f"{given[x.name]}={x.default!r}"
            for x in inspect.signature(function).parameters.values()
            if x.name in given and x.name not in without
        ),
        function=attribute,
        arguments=", ".join(f"{own}={ours}" for own, ours in given.items()),
        **more,
    )


def check_wrapped(name: str, function: Callable[..., Any], operation: str, required: Sequence[str]) -> None:
    """Refuse a function that needs an array for its result, or two outputs with an lse each.

    One of gradients takes the output of the forward pass.
    """
    results = [own for own in required if own.lower() in RESULTS and not operation.endswith("_vjp")]
    others = [own for own in required if own not in results]
    if [bool(_LSE.fullmatch(own)) for own in others] == [False, True, False, True]:
        seen = (
            f"{', '.join(others)} seem to be two outputs, each with its lse. Their operation is "
            "merge_partials, which has the parts in the first axis of two arrays; "
            "judge a wrapper that passes them in turn"
        )
        raise _error(name, function, seen, "merge_partials", _OF_PARTS)
    if weights := [own for own in required if own in ("params", "weights", "variables")]:
        raise BackendError(
            f"backend {name}: {weights[0]} seems to hold the weights of projections, which attention does "
            "not have; judge a wrapper with the arguments of multi_head_attention (spec/heads.md) that puts "
            "its weights there, or the attention inside of it: `attnspec init ./wrap.py:multi_head_attention`"
        )
    prefixes = [own for own in required if _PREFIXES.fullmatch(own)]
    if prefixes and not operation:
        seen = (
            f"{prefixes[0]} seems to be the number of first keys that every query may attend to, which is a "
            "mask (spec/recipes.md, Prefix language models); judge a wrapper that passes the number of keys, "
            "or 0 if it is asked for causality"
        )
        raise _error(name, function, seen, "attention", _OF_PREFIX, prefixes[0])
    for own in required:
        if made := _class_of(function, own):
            seen = f"{own} seems to be {made.__name__}, with {', '.join(_fields(made))}"
            seen += "; judge a wrapper that takes these and makes it"
            raise _error(name, function, seen, name.partition("?")[0].rpartition(":")[2], _OF_FIELDS, own)
    if results:
        seen = (
            f"{results[0]} seems to be an array for the result; judge a wrapper that makes it and returns it"
        )
        raise _error(name, function, seen, "attention", _OF_RESULT, results[0])


def _class_of(function: Callable[..., Any], own: str) -> type | None:
    """Return the class of named fields that a parameter takes: that it is annotated with, or of a cache."""
    annotated = inspect.signature(function).parameters[own].annotation
    module = sys.modules.get(getattr(function, "__module__", ""))
    things = vars(module) if module else {}
    classes = {name: x for name, x in things.items() if isinstance(x, type) and _fields(x)}
    if known := classes.get(annotated if isinstance(annotated, str) else getattr(annotated, "__name__", "")):
        return known
    caches = [x for x in classes.values() if any("cache" in field or meant(field) for field in _fields(x))]
    arrays = {name for names in (*ALIASES.values(), *OF_COMPANIONS.values()) for name in names}
    is_cache = "cache" in own.lower() and own.lower() not in arrays
    return caches[0] if is_cache and len(caches) == 1 else None


def _fields(made: type) -> tuple[str, ...]:
    """Return the names of the fields of a class of named fields; empty for another class."""
    return (*getattr(made, "_fields", getattr(made, "__dataclass_fields__", ())),)


def _error(
    name: str, function: Callable[..., Any], seen: str, operation: str, wrapper: str, made: str = ""
) -> BackendError:
    """Make an error with the lines of a wrapper, which `attnspec init` prints. It makes one argument."""
    place, _, attribute = name.partition("?")[0].rpartition(":")
    error = BackendError(
        f"backend {name}: {seen}: `attnspec init {place}:{attribute}` prints one. Save it as wrap.py, change "
        f"what is different in your function, and run `attnspec init ./wrap.py:{operation}`"
    )
    module = sys.modules.get(getattr(function, "__module__", ""))
    library = library_of(module) if module else "numpy"
    parameters = inspect.signature(function).parameters
    kept = [own for own in parameters.values() if own.name != made and own.kind not in _STARS]
    of_fields = wrapper is _OF_FIELDS and _class_of(function, made)
    fields = _fields(of_fields) if of_fields else ()
    signature = [own.name if own.default is own.empty else f"{own.name}={own.default!r}" for own in kept]
    at = [*parameters].index(made) if fields else 0
    signature[at:at] = fields
    signature += ["is_causal=False"] if wrapper is _OF_PREFIX else []
    error.add_note(
        wrapper.format(
            package={"jax": "jax.numpy"}.get(library, LIBRARIES.get(library, library)),
            module=Path(place).stem if place.endswith(".py") else place,
            function=attribute,
            signature=", ".join(signature),
            query=next((own for own in parameters if "query" in meant(own)), "query"),
            key=next((own for own in parameters if "key" in meant(own)), "key"),
            arguments=", ".join(f"{own}={own}" for own in (made, *(own.name for own in kept))),
            result=made,
            made=of_fields.__name__ if of_fields else "",
            fields=", ".join(f"{field}={field}" for field in fields),
        )
    )
    return error

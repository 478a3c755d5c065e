"""The guesses that a probe tries for a parameter, with a call that would confirm each."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.user.convention import Convention
from attnspec.operations.aliases import meant

_OPERATION = OPERATIONS["attention"]


@dataclass(frozen=True)
class Problem:
    """Mask and bias of the probed calls, of shape (B, H, L, S)."""

    mask: NDArray[np.bool_]
    bias: NDArray[Any]


@dataclass(frozen=True)
class Trial:
    """One guess.

    Attributes
    ----------
    convention : Convention
        The convention of the call.
    given, meant : mapping
        The options of the call, and those with which the reference gives the same result.
    variants : mapping of str to str
        The variants that the function shows if the guess is right.
    why : str
        The reason to write then.
    """

    convention: Convention
    given: dict[str, Any]
    meant: dict[str, Any]
    variants: dict[str, str]
    why: str = ""


def trials(named: Convention, ours: str, problem: Problem) -> Iterator[Trial]:
    """Yield calls that would confirm that a parameter is a given canonical argument."""
    queries, keys = problem.mask.shape[-2:]
    if ours == "mask":
        given = {"mask": problem.mask}
        yield Trial(named, given, given, {}, "True means: attend")
        yield Trial(replace(named, mask="ignore"), given, given, {}, "True means: do not attend")
    elif ours == "is_causal":
        on: dict[str, Any] = {"is_causal": True}
        yield Trial(named, on, on, {}, "its causal mask is aligned at the top left")
        right = on | {"query_offset": keys - queries}
        why = "its causal mask is aligned at the bottom right"
        yield Trial(named, on, right, {"MASK-3": "bottom-right"}, why)
    elif ours.startswith("return_"):
        if not named.returns:
            yield Trial(named, {ours: True}, {}, {})
    elif ours in (values := _values(problem)):
        yield Trial(named, {ours: values[ours]}, {ours: values[ours]}, {})


def _values(problem: Problem) -> dict[str, Any]:
    """Return a value for each other option that changes the result."""
    batch, heads, queries, keys = problem.mask.shape
    return {
        "scale": 0.3,
        "softcap": 0.7,
        "bias": problem.bias,
        "window": (1, 1),
        "query_lengths": np.linspace(3, queries, batch, dtype=int),
        "key_lengths": np.linspace(4, keys, batch, dtype=int),
        "sinks": np.linspace(-1, 1, heads).astype(problem.bias.dtype),
    }


def guessed(function: Callable[..., Any]) -> dict[str, tuple[str, ...]]:
    """Guess the canonical argument of each parameter, most likely first.

    The first parameters without a guess are taken for the missing arrays.

    Examples
    --------
    >>> from attnspec.backends.user.trials import guessed
    >>> guessed(lambda a, b, c, attn_mask=None, teapot=0: a)["attn_mask"]
    ('mask', 'bias')
    """
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = [one.name for one in inspect.signature(function).parameters.values() if one.kind not in stars]
    found = {name: (name,) if name in _OPERATION.arguments else meant(name) for name in own}
    taken = {ours for names in found.values() for ours in names}
    left = [name for name in own if not found[name]]
    for array in _OPERATION.arrays:
        if array not in taken and left:
            found[left.pop(0)] = (array,)
    return found

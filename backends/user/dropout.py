"""A function of attention with dropout by a seed: its calls without dropout are those of attention."""

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from attnspec.backends.backend import Backend
from attnspec.backends.user.companion import adapt_companion
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.signature import signature_of, without_ignored
from attnspec.backends.user.small_calls import cast, small_call
from attnspec.operations.aliases import meant_in

DROPOUT = "seeded_dropout_attention"
#: The arguments of dropout, with what leaves nothing out.
_NONE: Mapping[str, float] = {"dropout_p": 0.0, "seed": 0}


def dropout_names(name: str, function: Callable[..., Any], convention: Convention) -> dict[str, str]:
    """Name the parameters for the probability and the seed; empty unless it has both."""
    own = {ours: theirs for ours, theirs in convention.names.items() if ours in _NONE}
    for theirs in signature_of(name, function).parameters:
        ours = next((x for x in _NONE if theirs == x or meant_in(DROPOUT, theirs) == (x,)), "")
        own = {ours: theirs, **own} if ours else own
    return {ours: own[ours] for ours in _NONE} if own.keys() == _NONE.keys() else {}


def without_dropout(function: Callable[..., Any], own: Mapping[str, str]) -> Callable[..., Any]:
    """Return a function that leaves no weight out, without the parameters of dropout."""
    bound = functools.partial(function, **{theirs: _NONE[ours] for ours, theirs in own.items()})
    return without_ignored(bound, [*own.values()])


def without_names(convention: Convention) -> Convention:
    """Return the convention of the calls without dropout."""
    names = {ours: own for ours, own in convention.names.items() if ours not in _NONE}
    return replace(convention, names=names)


def is_seeded(
    backend: Backend, function: Callable[..., Any], convention: Convention, dtype: str = "float32"
) -> bool:
    """Whether calls leave weights out, the same ones for the same seed and others for another seed."""
    arrays = cast(small_call(DROPOUT, 4), dtype)
    with suppress(Exception):  # any exception means that they are no such parameters
        run = adapt_companion(backend.name, DROPOUT, function, convention, backend.xp)
        outputs = [
            backend.to_numpy(run(*map(backend.to_library, arrays.values()), dropout_p=p, seed=seed))
            for p, seed in ((0.0, 1), (0.5, 1), (0.5, 1), (0.5, 2))
        ]
        same = [np.array_equal(x, y) for x, y in pairwise(outputs)]
        return same == [False, True, False]
    return False

"""A rule by which another project accepts an implementation, and the calls that it is tried on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference import allowed_keys, attention

Array = NDArray[Any]
Given = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Trial:
    """One call."""

    given: Given  # the arguments of attention
    data: tuple[Array, ...] = ()  # the expected results, if the source stores them
    again: bool = False  # whether it differs from the trial before only in the random numbers

    @cached_property
    def exact(self) -> tuple[Array, ...]:
        """The results in float64, of the inputs as they are."""
        wide = {name: _wide(thing) for name, thing in self.given.items()}
        return outputs(attention(**wide))

    @cached_property
    def own(self) -> Array:
        """The output of plain arithmetic, in which each operation rounds to the dtype of the query."""
        return in_own_dtype(self.given)

    def repeat(self) -> "Trial":
        """Mark it as one that differs from the trial before only in the random numbers."""
        return replace(self, again=True)


#: Whether the results of a call are accepted.
Accepts = Callable[[tuple[Array, ...], Trial], bool]
#: Draws the trials of a rule.
Draw = Callable[[], list[Trial]]


@dataclass(frozen=True)
class Rival:
    """A rule, with its inputs."""

    name: str  # the project, and what tells the rule from its others
    source: str  # the address of the file that has the rule, at a commit or version
    rule: str  # a description of the rule
    inputs: str  # a description of the inputs that are used here, and of those of the source that are not
    draw: Draw  # draws the trials
    #: Takes the results of a call and its trial. An implementation is accepted if all its results are.
    accepts: Accepts


def outputs(found: Any) -> tuple[Array, ...]:
    """Return the results of a call as a tuple of arrays."""
    return tuple(np.asarray(array) for array in (found if isinstance(found, tuple) else (found,)))


def _wide(thing: Any) -> Any:
    is_floating = isinstance(thing, np.ndarray) and thing.dtype.kind not in "biu"
    return thing.astype(np.float64) if is_floating else thing


_MASKING = (
    "mask",
    "is_causal",
    "query_offset",
    "window",
    "query_lengths",
    "key_lengths",
    "query_segment_ids",
    "key_segment_ids",
    "bias",
)


def in_own_dtype(given: Mapping[str, Any]) -> Array:
    """Return the output. Products accumulate in float32 or better, as the products of PyTorch and JAX do."""
    query, key, value = (given[name] for name in ("query", "key", "value"))
    dtype = query.dtype
    wide = np.float64 if dtype.itemsize == 8 else np.float32

    def round_array(array: Array) -> Array:
        return array.astype(dtype).astype(wide)

    if query.ndim > 2:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (np.repeat(array, groups, axis=-3) for array in (key, value))
    scale = given.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    s = query.astype(wide) @ np.swapaxes(round_array(key.astype(wide) * wide(scale)), -1, -2)  # (*B, H, L, S)
    s = round_array(s)
    softcap = given.get("softcap")
    if softcap is not None:
        s = round_array(round_array(np.tanh(round_array(s / wide(softcap)))) * wide(softcap))
    if given.get("bias") is not None:
        s = round_array(s + given["bias"].astype(wide))
    masking = {name: given[name] for name in _MASKING if given.get(name) is not None}
    s = np.where(allowed_keys(s.shape, **masking), s, wide(-np.inf))
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = p.sum(axis=-1, keepdims=True)
    p = round_array(p / np.where(total == 0, 1, total))
    if given.get("dropout_mask") is not None:
        p = round_array(p * given["dropout_mask"] / wide(1 - given["dropout_rate"]))
    output: Array = (p @ value.astype(wide)).astype(dtype)
    return output

"""Frequencies of rotary embedding, stretched for longer sequences: the chapter `positions`."""

import math
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from attnspec.dtypes import FORMATS
from attnspec.operations import OPERATIONS
from attnspec.reference.call import Array, Call, step
from attnspec.reference.errors import dtype_name, flag, need, number, real, whole
from attnspec.reference.functions import public
from attnspec.reference.notation import count, narrow
from attnspec.reference.positions import check_base, check_depth, check_of_pairs

#: The arguments that each scaling needs.
_NEEDED = {
    "none": (),
    "linear": ("factor",),
    "dynamic": ("factor", "original_length", "length"),
    "yarn": ("factor", "original_length"),
    "longrope": ("factor", "original_length", "length", "short_factors", "long_factors"),
    "llama3": ("factor", "original_length"),
}


@dataclass(frozen=True)
class Frequencies(Call):
    """One call of `rotary_frequencies`: its arguments by their canonical names."""

    features: Array  # (*B, H, N, D)
    base: Any = 10000.0
    rotary_depth: Any = None
    scaling: str = "none"
    factor: Any = None
    original_length: Any = None
    length: Any = None
    beta_fast: Any = 32.0
    beta_slow: Any = 1.0
    truncate: bool = True
    mscale: Any = 1.0
    mscale_all_depth: Any = 0.0
    short_factors: Array = None  # (R / 2,), as the long factors
    long_factors: Array = None
    low_frequency_factor: Any = 1.0
    high_frequency_factor: Any = 4.0
    return_attention_factor: bool = False

    @property
    def pair(self) -> Array:
        """Index of each pair in float64, ``(R / 2,)``."""
        xp = self.xp
        return xp.astype(count(xp, self.rotary_depth // 2, self.features), xp.float64)


def rotary_frequencies_of(call: Call, features: Array, **options: Any) -> Any:
    """Return the angle of each pair at position 1, and the factor of rotated features.

    Notes
    -----
    Rules POS-18 to POS-25, with the sources of each scaling.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import rotary_frequencies
    >>> rotary_frequencies(np.ones((1, 4)), base=100.0, scaling="linear", factor=4.0).round(6).tolist()
    [0.25, 0.025]
    """
    return _compute(check_scaling(Frequencies(call.steps, call.xp, call.dtype, features, **options)))


rotary_frequencies = public(rotary_frequencies_of)


@step
def check_scaling(call: Frequencies) -> Frequencies:
    """Check each argument, and that those that the scaling needs are given (POS-6, POS-9, POS-25)."""
    shape = tuple(real(call, "features", call.features, "ERR-2").shape)
    need("features", len(shape) >= 2, "two axes or more", f"shape {shape}", "ERR-16")
    known = OPERATIONS["rotary_frequencies"].arguments
    words = known["scaling"].words
    need(
        "scaling",
        isinstance(call.scaling, str) and call.scaling in words,
        f"one of {words}",
        call.scaling,
        "ERR-16",
    )
    changes: dict[str, Any] = {
        "rotary_depth": check_depth(call.features, call.rotary_depth),
        "base": check_base(call.base),
    }
    for name in _NEEDED[call.scaling]:
        expected = f"a value for the scaling {call.scaling}"
        need(name, getattr(call, name) is not None, expected, None, "POS-25")
    for name in known.keys() - _CHECKED:
        given = getattr(call, name)
        if given is not None or known[name].default is not None:
            changes[name] = _check(call, name, given, changes["rotary_depth"])
    return check_range(call.but(**changes))


#: The arguments that other functions check.
_CHECKED = frozenset(("features", "base", "rotary_depth", "scaling"))


def _check(call: Frequencies, name: str, given: Any, depth: int) -> Any:
    """Check one argument by its declaration."""
    argument = OPERATIONS["rotary_frequencies"].arguments[name]
    if argument.kind == "array":
        check_of_pairs(call, name, given, call.features, depth)
        return given
    if argument.kind == "flag":
        return flag(name, given)
    bounds = argument.bounds
    least = 0 if bounds is None else bounds.least
    if argument.kind == "integer":
        return whole(name, given, least, "POS-25", kind="ERR-16")
    result = number(name, given, "POS-25")
    good = result > least if bounds is not None and bounds.above else result >= least
    need(name, good, f"a number {bounds}", given, "POS-25")
    return result


@step
def check_range(call: Frequencies) -> Frequencies:
    """Check that the formula of a scaling has a result (POS-25)."""
    if call.scaling == "yarn":
        need("base", call.base > 1, "a number above 1 for the scaling yarn", call.base, "POS-25")
    if call.scaling == "longrope":
        longer, least = call.original_length > 1, "2 or more for the scaling longrope"
        need("original_length", longer, least, call.original_length, "POS-25")
    if call.scaling == "llama3":
        low, high = call.low_frequency_factor, call.high_frequency_factor
        need("high_frequency_factor", high > low, f"a number above {low}", high, "POS-25")
    return call


def _compute(call: Frequencies) -> Any:
    xp = call.xp
    name = dtype_name(call.features)
    dtype = getattr(xp, FORMATS[name].lse) if call.dtype is None else call.dtype
    frequencies = narrow(call, scaled_frequencies(call), dtype)
    if not call.return_attention_factor:
        return frequencies
    return frequencies, xp.asarray(attention_factor(call), dtype=dtype, device=device(call.features))


@step
def base_frequencies(call: Frequencies) -> Array:
    """Return the frequencies of the base (POS-18)."""
    return call.base ** (-2 * call.pair / call.rotary_depth)


@step
def scaled_frequencies(call: Frequencies) -> Array:
    """Return the frequencies of the scaling (POS-18)."""
    return {
        "none": base_frequencies,
        "linear": linear,
        "dynamic": dynamic,
        "yarn": yarn,
        "longrope": longrope,
        "llama3": llama3,
    }[call.scaling](call)


@step
def linear(call: Frequencies) -> Array:
    """Divide every frequency by the factor: position interpolation (POS-19)."""
    return base_frequencies(call) / call.factor


@step
def dynamic(call: Frequencies) -> Array:
    """Raise the base so that the last pair is stretched for the length at hand (POS-20)."""
    longer = max(call.length, call.original_length) / call.original_length
    ratio = call.factor * longer - (call.factor - 1)
    depth = call.rotary_depth
    return base_frequencies(call) * ratio ** (-2 * call.pair / max(depth - 2, 1))


@step
def yarn(call: Frequencies) -> Array:
    """Stretch pairs that rotate slowly, and those between fast and slow in part (POS-21)."""
    low, high = yarn_range(call)
    ramp, plain = call.xp.clip((call.pair - low) / (high - low), 0, 1), base_frequencies(call)
    return plain / call.factor * ramp + plain * (1 - ramp)


@step
def yarn_range(call: Frequencies) -> tuple[float, float]:
    """Return the first and the last pair of the ramp (POS-21)."""
    low, high = yarn_pair(call, call.beta_fast), yarn_pair(call, call.beta_slow)
    if call.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, call.rotary_depth - 1)
    return low, high + 0.001 if low == high else high


@step
def yarn_pair(call: Frequencies, rotations: float) -> float:
    """Return the pair, not rounded, that makes a number of rotations in the original length (POS-21)."""
    wavelength = math.log(call.original_length / (rotations * 2 * math.pi))
    pair: float = call.rotary_depth * wavelength / (2 * math.log(call.base))
    return pair


@step
def longrope(call: Frequencies) -> Array:
    """Divide each frequency by its own factor, short or long (POS-23)."""
    return base_frequencies(call) / call.xp.astype(longrope_factors(call), call.xp.float64)


@step
def longrope_factors(call: Frequencies) -> Array:
    """Return the short factors up to the original length, and the long factors past it (POS-23)."""
    return call.long_factors if call.length > call.original_length else call.short_factors


@step
def llama3(call: Frequencies) -> Array:
    """Divide low frequencies by the factor, keep high ones, and mix between them (POS-24)."""
    plain, low, high = base_frequencies(call), call.low_frequency_factor, call.high_frequency_factor
    rotations = call.original_length * plain / (2 * math.pi)
    smooth = call.xp.clip((rotations - low) / (high - low), 0, 1)
    return (1 - smooth) * plain / call.factor + smooth * plain


@step
def attention_factor(call: Frequencies) -> float:
    """Return the factor of rotated features (POS-22, POS-23)."""
    if call.scaling == "yarn":
        return yarn_growth(call, call.mscale) / yarn_growth(call, call.mscale_all_depth)
    if call.scaling == "longrope" and call.factor > 1:
        return math.sqrt(1 + math.log(call.factor) / math.log(call.original_length))
    return 1.0


@step
def yarn_growth(call: Frequencies, mscale: float) -> float:
    """Return how far the logits grow with the factor (POS-22)."""
    return 0.1 * mscale * math.log(call.factor) + 1 if call.factor > 1 else 1.0

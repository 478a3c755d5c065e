"""Wrong about the frequencies of rotary embedding."""

import math
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import base, wrong
from attnspec.reference.frequencies import Frequencies


@wrong("unstretched", "POS-18", "Q")
def exponents_of_the_whole_depth(call: Frequencies) -> Any:
    """Divide exponents by the depth, and not by the rotary depth."""
    return call.base ** (-2 * call.pair / call.features.shape[-1])


@wrong("linear", "POS-19", "Q")
def frequencies_multiplied(call: Frequencies) -> Any:
    """Multiply by the factor, which makes sequences shorter."""
    return base.unstretched(call) * call.factor


@wrong("stretched", "POS-19", "Q", "ml-explore/mlx-lm#1545")
def factor_always_two(call: Frequencies) -> Any:
    """Divide by 2, whatever the factor."""
    return base.stretched(call if call.factor is None else call.but(factor=2.0))


@wrong("dynamic", "POS-20", "Q", "vllm-project/vllm#41236")
def base_for_the_longest(call: Frequencies) -> Any:
    """Compute the base for the longest sequence, whatever the length."""
    return base.dynamic(call.but(length=int(call.factor * call.original_length)))


@wrong("dynamic", "POS-20", "Q", "vllm-project/vllm#52665")
def base_for_short_sequences_too(call: Frequencies) -> Any:
    """Lower the base for sequences that are shorter than those of the training."""
    ratio = call.factor * call.length / call.original_length - (call.factor - 1)
    return base.unstretched(call) * np.maximum(ratio, 0.01) ** (-2 * call.pair / (call.rotary_depth - 2))


@wrong("dynamic", "POS-20", "Q")
def exponent_of_the_base_left_out(call: Frequencies) -> Any:
    """Multiply the base by the ratio of lengths, without the exponent R / (R - 2)."""
    ratio = call.factor * max(call.length / call.original_length, 1) - (call.factor - 1)
    return base.unstretched(call.but(base=call.base * ratio))


@wrong("yarn_range", "POS-21", "Q")
def range_never_rounded(call: Frequencies) -> Any:
    """Round neither end of the ramp."""
    return base.yarn_range(call.but(truncate=False))


@wrong("yarn_range", "POS-21", "Q")
def range_always_rounded(call: Frequencies) -> Any:
    """Round both ends of the ramp, whatever is asked for."""
    return base.yarn_range(call.but(truncate=True))


@wrong("yarn_range", "POS-21", "Q")
def fast_and_slow_by_default(call: Frequencies) -> Any:
    """Take 32 and 1 rotations for granted."""
    return base.yarn_range(call.but(beta_fast=32.0, beta_slow=1.0))


@wrong("yarn", "POS-21", "Q")
def ramp_the_other_way(call: Frequencies) -> Any:
    """Stretch fast pairs, and keep slow ones."""
    plain = base.unstretched(call)
    return plain + plain / call.factor - base.yarn(call)


@wrong("attention_factor", "POS-22", "Q", "vllm-project/vllm#48623")
def mscale_ignored(call: Frequencies) -> Any:
    """Compute the attention factor from the factor alone."""
    return base.attention_factor(call.but(mscale=1.0, mscale_all_depth=0.0))


@wrong("attention_factor", "POS-22", "Q")
def attention_factor_of_yarn_one(call: Frequencies) -> Any:
    """Leave the attention factor of YaRN out."""
    return 1.0 if call.scaling == "yarn" else base.attention_factor(call)


@wrong("yarn_growth", "POS-22", "Q")
def logarithm_of_a_factor_below_one(call: Frequencies, mscale: float) -> Any:
    """Lower the attention factor where sequences become shorter."""
    return 0.1 * mscale * math.log(call.factor) + 1


@wrong("longrope_factors", "POS-23", "Q", "ml-explore/mlx-lm#660")
def long_factors_always(call: Frequencies) -> Any:
    """Use the long factors for every length."""
    return call.long_factors


@wrong("longrope_factors", "POS-23", "Q", "unslothai/unsloth#10681")
def long_factors_from_the_original_length(call: Frequencies) -> Any:
    """Use the long factors for a sequence of exactly the original length."""
    return base.longrope_factors(call.but(length=call.length + 1))


@wrong("attention_factor", "POS-23", "Q", "ml-explore/mlx-lm#660")
def growth_where_nothing_grows(call: Frequencies) -> Any:
    """Use another attention factor than 1 where the factor is 1."""
    return base.attention_factor(call) if call.scaling != "longrope" else _of_longrope(call)


def _of_longrope(call: Frequencies) -> float:
    return math.sqrt(1 + math.log(max(call.factor, 1.5)) / math.log(call.original_length))


@wrong("llama3", "POS-24", "Q", "ml-explore/mlx-swift-examples#152")
def low_and_high_exchanged(call: Frequencies) -> Any:
    """Stretch high frequencies and keep low ones."""
    plain = base.unstretched(call)
    return plain + plain / call.factor - base.llama3(call)


@wrong("llama3", "POS-24", "Q")
def no_smoothing(call: Frequencies) -> Any:
    """Stretch every pair below the high frequencies by the whole factor."""
    plain = base.unstretched(call)
    rotations = call.original_length * plain / (2 * math.pi)
    return np.where(rotations < call.high_frequency_factor, plain / call.factor, plain)


@wrong("check_range", "POS-25", "U")
def range_of_a_scaling_not_checked(call: Frequencies) -> Any:
    """Compute where the formula has no value, and return what comes out."""
    if call.scaling == "yarn" and call.base <= 1:
        return call.but(base=1.5)
    high = max(call.high_frequency_factor, call.low_frequency_factor + 1)
    return call.but(original_length=max(call.original_length or 2, 2), high_frequency_factor=high)

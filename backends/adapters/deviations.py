"""Deviations that several libraries share, as functions of the finding."""

from collections.abc import Callable

from attnspec.backends.adapters.conditions import (
    Arguments,
    has_other_heads_of_value,
    has_overflowing_score,
    has_repeated_batch_entry,
    has_row_of_minus_infinity,
    rows_of_nan,
    rows_with_overflow,
    rows_without_keys,
    with_broadcast_batch,
    with_repeated_heads,
)
from attnspec.backends.deviation import Deviation
from attnspec.backends.outcome import OtherCall, Special, row_elements

#: The elements that may be NaN where masks are added, for a configuration to name.
elements_with_overflow, elements_of_nan = row_elements(rows_with_overflow()), row_elements(rows_of_nan)


def bias_overflow(source: str, working: str = "float32", rules: tuple[str, ...] = ("MASK-12",)) -> Deviation:
    """Declare that a bias of minus infinity is added to scores that may be infinite."""
    return mask_overflow(
        source, lambda arguments: "bias" in arguments, working, rules, "a bias of minus infinity"
    )


def mask_overflow(
    source: str,
    masked: Callable[[Arguments], bool],
    working: str = "float32",
    rules: tuple[str, ...] = ("MASK-12",),
    what: str = "a mask",
) -> Deviation:
    """Declare that a mask is added to scores that may be infinite."""
    return Deviation(
        rules,
        f"{what} is added, and the score of a finite key may be infinite: the row is NaN",
        source,
        Special(row_elements(rows_with_overflow(working))),
        when=lambda arguments: masked(arguments) and has_overflowing_score(arguments, working),
    )


def repeated_batch(source: str) -> Deviation:
    """Declare that one batch entry of keys and values is repeated."""
    reason = "keys and values of one batch entry are repeated"
    return Deviation(
        ("SHAPE-6",), reason, source, OtherCall(with_broadcast_batch), when=has_repeated_batch_entry
    )


def empty_row_gradient(source: str) -> Deviation:
    """Declare that a row of biases of minus infinity spoils the gradients of its head."""
    reason = "if all keys of a query have a bias of minus infinity, gradients of its head are NaN"
    outcome = Special(row_elements(rows_without_keys("bias")))
    return Deviation(("GRAD-10",), reason, source, outcome, when=has_row_of_minus_infinity)


def other_heads_of_value(
    source: str,
    reason: str = "values with another number of heads than the keys are accepted",
) -> Deviation:
    """Declare that heads of keys and of values are repeated, each as often as it needs."""
    return Deviation(
        ("HEAD-2",), reason, source, OtherCall(with_repeated_heads), when=has_other_heads_of_value
    )

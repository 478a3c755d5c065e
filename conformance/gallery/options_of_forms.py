"""Wrong about one option of one operation, which other operations take into account."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import base, rows
from attnspec.reference.call import Arguments, Call, Step


def _without_in(*layers: str) -> Any:
    """Make steps that attend in one stack of forms without some of its options."""

    def without(*names: str) -> Step:
        def attend(call: Call, own: tuple[str, ...], given: Arguments) -> Any:
            return base.attend_stack(call, own, given | (dict.fromkeys(names) if own == layers else {}))

        return attend

    return without


_paged, _packed = _without_in("paged", "quantized"), _without_in("packed", "quantized")


def _low_precision_without(name: str, other: Any = None) -> Step:
    """Attend to queries of codes without one option."""
    return lambda call, *arrays: base.attend_low_precision(call, *arrays[:-1], arrays[-1] | {name: other})


def _seeded_without(name: str) -> Step:
    """Compute gradients of seeded dropout without one of the arguments."""
    return lambda call: base.with_mask_again(call.but(**{name: None}))


def _empty_sinks_as_nan(call: Call, given: Arguments) -> Any:
    """Subtract the sink from itself in packed rows, also where it is minus infinity."""
    sinks = given["sinks"]
    return base.attend_packed(
        call, given if sinks is None else given | {"sinks": np.where(sinks == -np.inf, np.nan, sinks)}
    )


ENTRIES = rows(
    ("softcap_ignored_for_codes_in_pages", "attend_stack", "STACK-2", "F", _paged("softcap"),
     "Leave the softcap out where keys in pages are codes."),
    ("window_ignored_for_codes_in_pages", "attend_stack", "STACK-2", "E", _paged("window"),
     "Leave the window out where keys in pages are codes."),
    ("sinks_ignored_for_codes_in_pages", "attend_stack", "STACK-2", "M", _paged("sinks"),
     "Leave the sinks out where keys in pages are codes."),
    ("window_ignored_for_packed_codes", "attend_stack", "STACK-2", "E", _packed("window"),
     "Leave the window out where packed keys are codes."),
    ("mask_ignored_for_queries_of_codes", "attend_low_precision", "QUANT-10", "R",
     _low_precision_without("mask"), "Leave the mask out where queries are codes too."),
    ("query_lengths_ignored_for_queries_of_codes", "attend_low_precision", "QUANT-10", "R",
     _low_precision_without("query_lengths"), "Compute every query where queries are codes too."),
    ("scale_ignored_in_seeded_gradients", "with_mask_again", "DROP-11", "K", _seeded_without("scale"),
     "Take the default scale in the backward pass of seeded dropout."),
    ("d_lse_ignored_in_seeded_gradients", "with_mask_again", "DROP-11", "I", _seeded_without("d_lse"),
     "Ignore the cotangent of the lse in the backward pass of seeded dropout."),
    ("sink_of_minus_infinity_is_nan_in_packed_rows", "attend_packed", "SOFT-5", "M", _empty_sinks_as_nan,
     "Take minus infinity from itself for a sink of minus infinity in packed rows."),
)  # fmt: skip

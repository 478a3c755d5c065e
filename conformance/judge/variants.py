"""The variants that a call can show. The oracle is slow, so other variants are not computed."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.reference.rational.scores import SHOWN

#: A variant changes nothing unless all of these arguments are given.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "SCORE-5": ("softcap", "bias"),
    "MASK-2": ("bias",),
    "MASK-3": ("is_causal",),
    "MASK-8": ("window",),
}
#: Variants of one operation.
_OF_OPERATION: Mapping[str, str] = {
    "POS-8": "alibi_bias",
    "POS-15": "rotary",
    "POS-21": "rotary_frequencies",
    "POS-22": "rotary_frequencies",
}
#: Variants that change only the lse.
_OF_LSE = ("SOFT-6", "SOFT-7")


def can_show(case: Case, values: Mapping[str, Any], off: str) -> Iterator[tuple[str, str]]:
    """List the variants, with their rules, that may explain the output that differs.

    Examples
    --------
    >>> from attnspec import find_case
    >>> from attnspec.conformance.judge.variants import can_show
    >>> case = find_case("masking-empty-last")
    >>> list(can_show(case, case.expected, "output"))
    [('SCORE-2', 'one'), ('MASK-6', 'nan'), ('MASK-6', 'uniform')]
    """
    for rule, variants in SHOWN.items():
        if _changes(rule, case, values, off):
            yield from ((rule, variant) for variant in variants)


def _changes(rule: str, case: Case, values: Mapping[str, Any], off: str) -> bool:
    if rule.startswith("GRAD-"):
        return case.operation == "attention_vjp" and (rule != "GRAD-6" or "d_lse" in case.arguments)
    if rule == "SCORE-2":
        return "scale" in OPERATIONS[case.operation].arguments and case.arguments.get("scale") is None
    if rule in _NEEDS:
        return all(name in case.arguments for name in _NEEDS[rule])
    if rule in _OF_OPERATION:
        return case.operation == _OF_OPERATION[rule]
    if rule == "PACK-5":
        return "query_starts" in case.arguments
    if rule == "HEAD-1":
        shapes = [case.arguments[name].shape[:-2] for name in ("query", "key") if name in case.arguments]
        return len(shapes) < 2 or shapes[0] != shapes[1]
    if OPERATIONS[case.operation].differentiates:
        return False  # the gradients of the other rules' rows are named by GRAD-10
    lse, weights = values.get("lse"), values.get("weights")
    if rule in _OF_LSE:
        return off == "lse" and (rule == "SOFT-6" or lse is None or bool((lse == -np.inf).any()))
    return weights is None or bool((weights == 0).all(axis=-1).any())

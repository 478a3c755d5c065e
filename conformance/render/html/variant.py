"""Finds where the values of a declared variant differ from those of the rule, in a golden vector."""

from collections.abc import Mapping
from functools import cache

import numpy as np

from attnspec import Case, cases
from attnspec.conformance.verdict import Difference, Verdict


def of_variant(verdict: Verdict) -> Difference | None:
    """Return the first element that the variant of a verified deviation changes, and both of its values.

    The value of the variant stands for the value of the backend, which was judged to be within its budget.

    Examples
    --------
    >>> from attnspec.conformance.render.html.variant import of_variant
    >>> from attnspec.conformance.verdict import Verdict
    >>> told = {"dtype": "float32", "rule": "MASK-6", "variant": "nan"}
    >>> shown = of_variant(Verdict("b", "masking-empty-head-float32", "", ("MASK-6",), "deviation", **told))
    >>> shown.output, shown.element, shown.got, shown.expected
    ('output', (1, 1, 0), nan, 0.0)
    """
    case = _golden().get(verdict.case.removesuffix(f"-{verdict.dtype}"))
    if verdict.status != "deviation" or not verdict.variant or case is None:
        return None
    for one in case.alternatives:
        if (one.rule, one.variant) == (verdict.main_rule, verdict.variant):
            for output, values in one.expected.items():
                usual = case.expected.get(output)
                if usual is None or np.shape(usual) != np.shape(values):
                    continue
                differs = ~((values == usual) | (np.isnan(values) & np.isnan(usual)))
                if differs.any():
                    element = tuple(int(index) for index in np.argwhere(differs)[0])
                    return Difference("value", output, element, float(values[element]), float(usual[element]))
    return None


@cache
def _golden() -> Mapping[str, Case]:
    return {case.id: case for case in cases()}

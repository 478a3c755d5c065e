"""Which variants and declared deviations a backend shows, and in how many cases of each rule."""

from collections import Counter
from collections.abc import Iterable, Mapping

from attnspec.conformance.outside import one_line
from attnspec.conformance.verdict import Verdict

#: The most deviations of a rule, and the most characters of one, that a cell names.
_MOST, _LONGEST = 2, 60


def shown_of(verdicts: Iterable[Verdict]) -> Mapping[str, str]:
    """Return what the deviations of each rule are, the most frequent first.

    A variant has its name. A deviation without one has the reason that is declared.

    Examples
    --------
    >>> from attnspec.conformance.render.html.shown import shown_of
    >>> from attnspec.conformance.verdict import Verdict
    >>> told = {"rule": "MASK-6", "variant": "nan"}
    >>> shown_of([Verdict("b", case, "", ("MASK-6",), "deviation", **told) for case in "cd"])
    {'MASK-6': 'nan'}
    """
    found: dict[str, Counter[str]] = {}
    for one in verdicts:
        if one.status == "deviation" and (text := one_line(one.variant or one.reason)):
            found.setdefault(one.main_rule, Counter())[text] += 1
    return {rule: _listed(counts) for rule, counts in found.items()}


def _listed(counts: Counter[str]) -> str:
    """Name some deviations. With more than one, each has its number of cases."""
    texts = [
        _short(text) if len(counts) == 1 else f"{_short(text)}: {number}"
        for text, number in counts.most_common(_MOST)
    ]
    more = len(counts) - len(texts)
    return "; ".join(texts) + (f"; {more} more" if more else "")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"

"""Who does what: for each rule, which libraries keep it and what the others do, from the stored results."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnspec import Rule
from attnspec.backends.names import ADAPTERS, PORTABLE, SEPARATE
from attnspec.conformance.attribution.levels import NOT_SHOWN, count_by_rule
from attnspec.conformance.verdict import Verdict
from pages.page import code, inline, link, plural, raw, table

if TYPE_CHECKING:
    from pages.libraries import Standing


@dataclass(frozen=True)
class Outcome:
    """What a backend does about one rule.

    Attributes
    ----------
    counts : mapping of str to int
        The number of cases by result.
    ways : mapping of (variant, reason) to int
        The number of cases that show each declared deviation.
    """

    counts: Mapping[str, int]
    ways: Mapping[tuple[str, str], int]


def outcomes(verdicts: Sequence[Verdict]) -> dict[str, Outcome]:
    """Return the outcome of each rule in the verdicts of one backend.

    Examples
    --------
    >>> verdict = Verdict("b", "c-float32", "", ("MASK-6",), "deviation", rule="MASK-6", variant="nan")
    >>> outcomes([verdict])["MASK-6"].ways
    Counter({('nan', ''): 1})
    """
    ways: dict[str, Counter[tuple[str, str]]] = {}
    for one in verdicts:
        if one.status == "deviation":
            way = (one.variant, "" if one.variant else one.reason)
            ways.setdefault(one.main_rule, Counter())[way] += 1
    return {
        rule: Outcome(counts, ways.get(rule, Counter())) for rule, counts in count_by_rule(verdicts).items()
    }


def who(rule: Rule, standing: Iterable["Standing"], known: frozenset[str], *, results: bool) -> str:
    """Return a table of what the backends of libraries do about a rule, and empty text if none was run."""
    variants = {one.name: one for one in rule.variants}
    holds, offered = [], []
    rows: dict[str, list[str]] = {}
    every = [one for one in standing if one.backend not in PORTABLE]
    for one in every:
        outcome = one.outcomes.get(rule.id)
        name = f"{one.backend} {one.version.rpartition(' ')[2]}"
        shown = link(f"../results/{one.backend}.html", code(name)) if results else code(name)
        counts = outcome.counts if outcome else {}
        judged = sum(number for status, number in counts.items() if status != "unsupported")
        if outcome is None or not judged:
            offered.append(shown)
            continue
        said = []
        for (variant, reason), number in outcome.ways.items():
            if variant in variants:
                text = variants[variant].text.partition(". ")[0].rstrip(".")
                what = f"{link(f'#{variant}', code(variant))}: {inline(text, known=known)}"
            else:
                what = code(variant) if variant else inline(reason, known=known)
            said.append((what, number))
        plain = {
            "fail": "fails, and declares nothing",
            "error": "raises where it must not",
            "should not met": "does not keep what the rule says it SHOULD",
            NOT_SHOWN: "does not have this property, which is a MAY",
        }
        said += [(text, counts[status]) for status, text in plain.items() if counts.get(status)]
        if not said:
            holds.append(shown)
        for what, number in said:
            share = "all" if number == judged else f"{number} of {judged}"
            rows.setdefault(what, []).append(f"{shown} ({share})")
    if not holds and not rows:
        return ""
    cells = [("keeps the rule", ", ".join(holds))] if holds else []
    cells += [(what, ", ".join(those)) for what, those in rows.items()]
    if offered:
        inner = f"<details><summary>{plural(len(offered), 'backend')}</summary>{', '.join(offered)}</details>"
        cells.append(("does not offer what the rule is about", inner))
    absent = [name for name in (*ADAPTERS, *SEPARATE) if name not in {one.backend for one in every}]
    missing = f" Without stored results: {', '.join(map(code, absent))}." if absent else ""
    return "\n".join(
        [
            "## Who does what\n",
            raw(
                f"<p>{plural(len(every), 'backend')} of libraries, in the versions of the stored results. "
                f"In brackets is the number of judged cases.{missing}</p>"
            ),
            raw(
                table(
                    ("what it does", "backends"),
                    cells,
                    label=f"Who does what about {rule.id}",
                    kind="who stack",
                )
            ),
        ]
    )

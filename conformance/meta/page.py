"""Writes the kill matrix as a page: ``README.md`` in the gallery."""

from pathlib import Path

from attnspec import find_rule, rules
from attnspec.conformance.gallery import KINDS, NEEDS, Entry, correct_entries, wrong_entries
from attnspec.conformance.meta.diagnosed import report
from attnspec.conformance.meta.stored import Kill, Stored

PAGE = Path(__file__).resolve().parents[1] / "gallery" / "README.md"

_HEAD = """\
# The gallery

A conformance suite is worth the bugs that it finds. Here stand {wrong} implementations of attention and its
companions that are wrong, each in one named way that somebody really shipped or easily could, and {correct}
that are correct and made otherwise. They are one correct implementation, a row of named steps, with one step
replaced: to read an entry is to see the bug. `attnspec check attnspec.conformance.gallery:NAME` judges one
of them like any backend.

`nox -s gallery` judges the suite by them. Every wrong one has to fail, and has to fail the rule under which
it is filed here; every correct one has to pass all of the suite, in every dtype; and every rule has to be
broken by some entry. All of them can be: {broken} of {rules} rules are.

Below, *killed by* is the cheapest case that says the rule is broken: of those that are there for this rule,
golden vectors first, the smallest of them first, in dtype after dtype; then generated cases; then relations
between calls. *Quick* says whether the part of the suite that `--quick` leaves kills it too: {quick} of
{wrong} are killed by it. *Seen* is a public thread about such a bug. `python -m
attnspec.conformance.meta.gallery --write` measures all of this, keeps it in `kills.json` and writes this page
of it; our tests check that both are as the gallery is.

Some entries are wrong only past the sizes of the ordinary run, or only in many calls. Instead of a case, the
table then says what the entry needs: {needs}. Of these there are {survivors}.
`conformance/gallery/edges/needs.json` has a call for each of those that need sizes, and our tests make it.

## Diagnosis

A backend that fails is held against the gallery: where one entry gives its results on every call that it
fails, and right results on every call that it passes, the report names it. Measured on the gallery itself,
each wrong entry on another base and on calls of another seed, by `python -m
attnspec.conformance.meta.diagnosed`; then once more with its own entry taken away, when any name is that of
a neighbour which these calls do not tell from it:

```text
{said}
```

## Classes of bugs

{kinds}
"""


def page(stored: Stored) -> str:
    """Write the page from the stored measurements.

    Raises
    ------
    KeyError
        When an entry is missing.
    """
    killed, wrong, correct = stored.kills, wrong_entries(), correct_entries()
    kinds = [f"- {letter}: {text}" for letter, text in KINDS.items()]
    head = _HEAD.format(
        wrong=len(wrong),
        correct=len(correct),
        rules=len(rules()),
        broken=len({one.rule for one in wrong}),
        quick=sum(killed[one.name].quick for one in wrong),
        kinds="\n".join(kinds),
        said=report(stored.diagnosis),
        needs="; ".join(f"*{need}*, {text}" for need, text in NEEDS.items()),
        survivors=sum(bool(one.needs) and not killed[one.name].case for one in wrong),
    )
    parts = [head]
    order = [rule.id for rule in rules()]
    for chapter in dict.fromkeys(rule.chapter for rule in rules()):
        own = [one for one in wrong if find_rule(one.rule).chapter == chapter]
        own.sort(key=lambda one: order.index(one.rule))
        columns = ("name", "rule", "what it does", "class", "seen", "killed by", "quick")
        rows = [_row(one, killed[one.name]) for one in own]
        parts.append("\n".join([f"## Wrong: {chapter}", "", *_headed(*columns), *rows]) + "\n")
    rows = [f"| `{one.name}` | {one.sentence} | {one.accuracy} | {', '.join(one.lacks)} |" for one in correct]
    headed = _headed("name", "how it is made", "class of budget", "without")
    parts.append("\n".join(["## Correct", "", *headed, *rows]) + "\n")
    return "\n".join(parts)


def _headed(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]


def _row(one: Entry, kill: Kill) -> str:
    repository, _, number = one.seen.partition("#")
    seen = f"[{one.seen}](https://github.com/{repository}/issues/{number})" if one.seen else ""
    said = one.sentence.replace("|", "\\|")
    quick = "yes" if kill.quick else "no"
    killed = kill.case or (f"needs {one.needs}" if one.needs else "")
    return f"| `{one.name}` | {one.rule} | {said} | {one.kind} | {seen} | {killed} | {quick} |"

"""Writes the kill matrix as a page: ``README.md`` in the gallery."""

from collections.abc import Sequence
from pathlib import Path

from attnspec import find_rule, rules
from attnspec.conformance.gallery import KINDS, NEEDS, Entry, correct_entries, wrong_entries
from tools.diagnosed import report
from tools.stored import Kill, Stored

PAGE = Path(__file__).resolve().parents[1] / "conformance" / "gallery" / "README.md"

_HEAD = """\
# The gallery

The gallery measures which bugs the suite finds. It has {wrong} wrong implementations of attention and its
companions. Each has one named bug that somebody has shipped or could easily ship. It also has {correct}
correct implementations that compute in other ways. All entries are one correct implementation, a sequence of
named steps, with one step replaced. The replaced step shows the bug. To judge an entry like any backend, run
`attnspec check attnspec.conformance.gallery:NAME`.

`nox -s gallery` judges the suite by these entries. Every wrong entry must fail, under the rule that the table
lists for it. Every correct entry must pass the whole suite, in every dtype. Every rule must be broken by an
entry: {broken} of {rules} rules are.

In the tables, *killed by* is the cheapest case that reports the broken rule. The cases of a rule are tried in
this order: golden vectors by size and dtype, generated cases, relations between calls. *Quick* says whether
the part of the suite that `--quick` runs also kills the entry. It kills {quick} of {wrong} entries. *Seen* is
a public thread about such a bug. `python -m tools.gallery --write` measures all of this,
stores it in `kills.json` and writes this page. Tests check that both files match the gallery.

Some entries are wrong only past the sizes of the ordinary run, or only in many calls. No case of their own
rule kills these {survivors} entries. The ordinary run kills {otherwise} of them under another rule. `--sizes`
kills {sized} more, by its cases of up to 2^32 multiplications. The table then lists the case and the rule
that it reports.{left} For each of these entries, `conformance/gallery/edges/needs.json` has a call that shows
the bug. Tests make these calls.

## Diagnosis

The suite compares a backend that fails with the gallery. If one entry has the results of the backend on every
call that it fails, and right results on every call that it passes, the report names this entry.
`python -m tools.diagnosed` measures this on the gallery itself. It puts each wrong entry
on another base and diagnoses it on calls of another seed. It then repeats this without the entry itself. Any
name in the second measurement is that of a similar entry, which these calls do not distinguish:

```text
{said}
```

## Classes of bugs

{kinds}
"""


def page(stored: Stored) -> str:
    """Write the page from the stored measurements."""
    killed, wrong, correct = stored.kills, wrong_entries(), correct_entries()
    kinds = [f"- {letter}: {text}" for letter, text in KINDS.items()]
    late = [killed[one.name] for one in wrong if one.needs and not killed[one.name].case]
    head = _HEAD.format(
        wrong=len(wrong),
        correct=len(correct),
        rules=len(rules()),
        broken=len({one.rule for one in wrong}),
        quick=sum(killed[one.name].quick for one in wrong),
        kinds="\n".join(kinds),
        said=report(stored.diagnosis),
        survivors=len(late),
        otherwise=sum(kill.ordinary for kill in late),
        sized=sum(bool(kill.other) and not kill.ordinary for kill in late),
        left=_left([kill for kill in late if not kill.other]),
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


def _left(alive: Sequence[Kill]) -> str:
    needs = "; ".join(f"*{need}*, {text}" for need, text in NEEDS.items())
    return f"\nFor the other {len(alive)} entries, it says what they need: {needs}." if alive else ""


def _headed(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]


def _row(one: Entry, kill: Kill) -> str:
    repository, _, number = one.seen.partition("#")
    seen = f"[{one.seen}](https://github.com/{repository}/issues/{number})" if one.seen else ""
    said = one.sentence.replace("|", "\\|")
    quick = "yes" if kill.quick else "no"
    other = f"{kill.other} as {kill.reported}" if kill.other else ""
    killed = kill.case or other or (f"needs {one.needs}" if one.needs else "")
    return f"| `{one.name}` | {one.rule} | {said} | {one.kind} | {seen} | {killed} | {quick} |"

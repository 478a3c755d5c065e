"""The stored figures, ``acceptance.json``, and the page that shows them, ``acceptance.md``.

The figures are what each rule says of each subject, a letter each.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from attnspec.conformance.gallery import entry
from tools.rivals.measure import RIVALS, Judged, judge_by, lets_through, own_cheats
from tools.rivals.rival import Rival
from tools.rivals.subjects import Subject, cheats, right, wrong

FILE = Path(__file__).resolve().parents[2] / "conformance" / "acceptance.json"

#: Rejected; accepted with results that are right in every call; accepted with results that are not.
REJECTED, UNSEEN, SEEN = "-", "=", "~"
#: The name of the suite of attnspec in the figures.
OWN = "attnspec"


@dataclass(frozen=True)
class Figures:
    """The letters of all subjects, in the order of the rules."""

    rules: tuple[str, ...]
    wrong: Mapping[str, str]
    cheats: Mapping[str, str]
    correct: Mapping[str, str]

    def letters(self, group: str, rule: str) -> dict[str, str]:
        """Return the letters of the subjects of a group under one rule."""
        place = self.rules.index(rule)
        return {name: letters[place] for name, letters in getattr(self, group).items()}


def measure(rivals: Sequence[Rival], progress: Callable[[str], None] = lambda _: None) -> Figures:
    """Judge everything by all rules, the suite of attnspec included."""
    groups = {"wrong": wrong(), "cheats": cheats(), "correct": right()}
    subjects = [subject for group in groups.values() for subject in group]
    letters: dict[str, dict[str, str]] = {}
    for draw in dict.fromkeys(rival.draw for rival in rivals):
        alike = [rival for rival in rivals if rival.draw == draw]
        letters |= letters_of(subjects, alike)
        progress(", ".join(rival.name for rival in alike))
    own = lets_through([member.name for member in groups["wrong"]]) | own_cheats()
    letters[OWN] = {subject.name: UNSEEN if subject.name in own else REJECTED for subject in subjects}
    # `nox -s gallery` fails if the suite does not pass a correct entry.
    letters[OWN] |= {member.name: UNSEEN for member in groups["correct"]}
    rules = (*(rival.name for rival in rivals), OWN)
    return Figures(
        rules,
        **{
            group: {member.name: "".join(letters[rule][member.name] for rule in rules) for member in members}
            for group, members in groups.items()
        },
    )


def letters_of(subjects: Iterable[Subject], rivals: Sequence[Rival]) -> dict[str, dict[str, str]]:
    """Judge subjects by rules that have the same inputs, and return the letters by rule and subject."""
    return {
        rule: {name: _letter(judged) for name, judged in by_name.items()}
        for rule, by_name in judge_by(rivals, subjects).items()
    }


def _letter(judged: Judged) -> str:
    if not judged.accepted:
        return REJECTED
    return SEEN if judged.off else UNSEEN


def read(path: Path = FILE) -> Figures:
    """Read the figures."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Figures(**{**content, "rules": tuple(content["rules"])})


def store(figures: Figures, path: Path = FILE) -> None:
    """Write the figures."""
    path.write_text(json.dumps(asdict(figures), indent=1) + "\n", encoding="utf-8", newline="\n")


PAGE = Path(__file__).resolve().parents[2] / "conformance" / "acceptance.md"
#: The number of entries that the page lists for each rule.
_LISTED = 3

_HEAD = """\
# What acceptance rules let through

Most projects accept an implementation of attention if its results are close to those of another one, on
inputs that they draw. This page shows which bugs such rules do not find. It holds the
[gallery](gallery/README.md) against the rules of other projects, each with the inputs of its source.

- *Wrong* counts the {wrong} wrong entries that compute the forward pass of attention in another way.
  Entries that concern gradients, companions or refusals only are left out.
- *Off* counts the entries among them that had a wrong result in these calls: its largest error was more than
  ten times that of the correct implementation. The rule accepted it. For the others, no call shows the bug,
  most often because no call has the option that is wrong.
- *Cheats* do not compute attention at all: {cheats}.
- *Correct* counts the correct entries that the rule rejects, of the {correct} that have a
  forward pass of their own.

{table}

The rows of a rule are made as follows:

- An implementation is accepted if the rule accepts its results of every call. An exception is a rejection.
  A call with an argument that an entry does not take is left out for this entry.
- The inputs have the shapes, the distribution, the dtypes and the options of the source, but other random
  numbers. The table says where sizes are smaller than in the source, so that NumPy computes them in a short
  time. The full sizes can show more of the bugs that depend on sizes. Bugs of an option that no input has
  stay invisible at any size.
- A rule that compares with a library is given the arithmetic of this library: scores in the dtype of the
  inputs or in float32, as in its source. Otherwise it is given the result in float64.
- If calls differ in their random numbers only, the first is always made. The others are made if a result
  before differs from that of the correct implementation in some bit.
- The row of attnspec is the ordinary run of its suite, from the kill matrix of the gallery. The {left}
  entries that it lets through are wrong only at sizes that the ordinary run does not have; `--sizes` rejects
  them. The suite judges more than the output of one call: the lse, the weights, memory between calls, and
  the inputs afterwards. `nox -s gallery` fails if it rejects a correct entry.

`python -m tools.rivals --write` measures all of this, stores it in `acceptance.json`
and writes this page. Tests check that both agree.

## Accepted with wrong results

For each rule, wrong entries whose results it accepted although they are off, as above. Those that most other
rules reject come first.

{lists}
"""


def page(figures: Figures) -> str:
    """Write the page from the stored figures."""
    rows = [
        "| rule | accepts if | inputs | wrong | off | cheats | correct |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(rival.name, rival, figures) for rival in RIVALS),
        _row(OWN, None, figures),
    ]
    return _HEAD.format(
        wrong=len(figures.wrong),
        correct=len(figures.correct),
        cheats=", ".join(figures.cheats),
        left=count_accepted(figures, "wrong", OWN),
        table="\n".join(rows),
        lists="\n".join(line for rival in RIVALS for line in _list_accepted(rival.name, figures)),
    )


def count_accepted(figures: Figures, group: str, rule: str) -> int:
    """Return how many subjects of a group a rule accepts."""
    return sum(letter != REJECTED for letter in figures.letters(group, rule).values())


def _row(name: str, rival: Rival | None, figures: Figures) -> str:
    seen = sum(letter == SEEN for letter in figures.letters("wrong", name).values())
    numbers = [
        f"{count_accepted(figures, 'wrong', name)} of {len(figures.wrong)}",
        str(seen) if rival else "",
        f"{count_accepted(figures, 'cheats', name)} of {len(figures.cheats)}",
        f"{len(figures.correct) - count_accepted(figures, 'correct', name)} of {len(figures.correct)}",
    ]
    text = (
        [f"[{rival.name}]({rival.source})", rival.rule, rival.inputs]
        if rival
        else [name, "every element is within its error budget, and relations between calls hold", "its suite"]
    )
    return f"| {' | '.join(text + numbers)} |"


def _list_accepted(name: str, figures: Figures) -> list[str]:
    seen = [entry_name for entry_name, letter in figures.letters("wrong", name).items() if letter == SEEN]
    seen.sort(key=lambda entry_name: (-figures.wrong[entry_name][:-1].count(REJECTED), entry_name))
    cheats = [
        entry_name
        for entry_name, letter in figures.letters("cheats", name).items()
        if letter in (SEEN, UNSEEN)
    ]
    lines = [f"- {name}:"]
    lines += [f"  - *{entry_name}*, a cheat" for entry_name in cheats]
    lines += [f"  - `{entry_name}`: {entry(entry_name).sentence}" for entry_name in seen[:_LISTED]]
    return lines if len(lines) > 1 else [f"- {name}: none."]

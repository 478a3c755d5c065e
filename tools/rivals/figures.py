"""The stored figures: ``acceptance.json``, and what each rule says of each subject, a letter each."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.rivals.measure import Judged, judged
from tools.rivals.own import lets_through, own_cheats
from tools.rivals.rival import Rival
from tools.rivals.subjects import Subject, cheats, right, wrong

FILE = Path(__file__).resolve().parents[2] / "conformance" / "acceptance.json"

#: Rejected; accepted with results that are right in every call; accepted with results that are not.
REJECTED, UNSEEN, SEEN = "-", "=", "~"
#: The name of the suite of attnspec in the figures.
OWN = "attnspec"


@dataclass(frozen=True)
class Figures:
    """The letters of all subjects, in the order of the rules.

    Attributes
    ----------
    rules : tuple of str
    wrong, cheats, correct : mapping of str to str
    """

    rules: tuple[str, ...]
    wrong: Mapping[str, str]
    cheats: Mapping[str, str]
    correct: Mapping[str, str]

    def letters(self, group: str, rule: str) -> dict[str, str]:
        """Return the letters of the subjects of a group under one rule."""
        place = self.rules.index(rule)
        return {name: letters[place] for name, letters in getattr(self, group).items()}


def measured(rivals: Sequence[Rival], progress: Callable[[str], None] = lambda _: None) -> Figures:
    """Judge everything by all rules, the suite of attnspec included."""
    groups = {"wrong": wrong(), "cheats": cheats(), "correct": right()}
    every = [one for group in groups.values() for one in group]
    letters: dict[str, dict[str, str]] = {}
    for draw in dict.fromkeys(rival.draw for rival in rivals):
        alike = [rival for rival in rivals if rival.draw == draw]
        letters |= letters_of(every, alike)
        progress(", ".join(rival.name for rival in alike))
    own = lets_through([one.name for one in groups["wrong"]]) | own_cheats()
    letters[OWN] = {one.name: UNSEEN if one.name in own else REJECTED for one in every}
    # `nox -s gallery` fails if the suite does not pass a correct entry.
    letters[OWN] |= {one.name: UNSEEN for one in groups["correct"]}
    rules = (*(rival.name for rival in rivals), OWN)
    return Figures(
        rules,
        **{
            group: {one.name: "".join(letters[rule][one.name] for rule in rules) for one in members}
            for group, members in groups.items()
        },
    )


def letters_of(subjects: Iterable[Subject], rivals: Sequence[Rival]) -> dict[str, dict[str, str]]:
    """Judge subjects by rules that have the same inputs, and return the letters by rule and subject."""
    return {
        rule: {name: _letter(one) for name, one in found.items()}
        for rule, found in judged(subjects, rivals).items()
    }


def _letter(one: Judged) -> str:
    if not one.accepted:
        return REJECTED
    return SEEN if one.off else UNSEEN


def read(path: Path = FILE) -> Figures:
    """Read the figures.

    Examples
    --------
    >>> from tools.rivals.figures import read
    >>> read().letters("wrong", "attnspec")["inverted_polarity"]
    '-'
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    return Figures(**{**content, "rules": tuple(content["rules"])})


def write(figures: Figures, path: Path = FILE) -> None:
    """Write the figures."""
    path.write_text(json.dumps(asdict(figures), indent=1) + "\n", encoding="utf-8", newline="\n")

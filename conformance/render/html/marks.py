"""The marks of cells: a letter for data, a symbol and words for people, so that no mark needs a colour."""

from collections.abc import Mapping
from dataclasses import dataclass

from attnspec import levels
from attnspec.conformance.attribution.levels import NOT_SHOWN, Standing
from attnspec.conformance.render.counts import cell


@dataclass(frozen=True)
class Mark:
    """One result of a rule or a level.

    `letter` is also its class in the style sheet; `short` is `text` in a few words.
    """

    letter: str
    symbol: str
    name: str
    text: str
    short: str


#: Every mark, the gravest first.
MARKS = (
    Mark("f", "\u2717", "fail", "a case of the rule fails", "a case fails"),
    Mark(
        "d",
        "\u2260",
        "deviation",
        "breaks the rule in a way that is declared, and verified by the suite",
        "breaks the rule in a declared way",
    ),
    Mark(
        "s",
        "\u25b3",
        "should not met",
        "a SHOULD that does not hold; this fails no run",
        "a recommendation (SHOULD) does not hold",
    ),
    Mark("m", "\u25cb", "not shown", "a MAY that does not hold", "a permission (MAY) is not used"),
    Mark("n", "?", "not run", "these results have no verdict on the rule", "no verdict"),
    Mark(
        "u", "\u2013", "not offered", "the library does not offer what the rule is about", "no such feature"
    ),
    Mark("p", "\u2713", "pass", "every judged case of the rule passes", "every judged case passes"),
)
#: The marks by letter.
MARK = {mark.letter: mark for mark in MARKS}
_LETTERS = {
    "fail": "f",
    "error": "f",
    "deviation": "d",
    "should not met": "s",
    NOT_SHOWN: "m",
    "not judged": "n",
    "unsupported": "u",
    "pass": "p",
}


def letter_of(counts: Mapping[str, int]) -> str:
    """Return the letter of a rule from the counts of its results. Without any verdict it is not a pass."""
    return _LETTERS[cell(counts)[1]] if counts else "n"


def letter_of_case(status: str, rule: str) -> str:
    """Return the letter of one case. An error has its own, and so has a MAY that does not hold."""
    if status == "unsupported":
        return "m" if rule else "u"
    return "e" if status == "error" else _LETTERS[status]


def letter_of_level(standing: Standing | None) -> str:
    """Return the letter of a level: that of its own rules if they are not offered, else the gravest."""
    if standing is None:
        return "n"
    if standing.reached:
        return "p"
    # A class that is too loose is no result of a rule.
    letters = {rule: _LETTERS.get(what, "s") for rule, what in standing.missing.items()}
    own = next((level.rules for level in levels() if level.name == standing.level), ())
    if own and all(letters.get(rule) in ("u", "m", "n") for rule in own):
        letters = {rule: letters[rule] for rule in own}
    return next(mark.letter for mark in MARKS if mark.letter in letters.values())

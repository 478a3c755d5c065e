"""The questions with longer answers, of which many begin with "why", on the page of questions."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from pages.known import Known
from pages.page import Name, anchor

from attnspec import __version__

WHYS = Path(__file__).parents[1] / "whys.toml"


@dataclass(frozen=True)
class Why:
    """A question, and its answer."""

    question: str
    answer: str
    rules: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def place(self) -> str:
        """The anchor of the question."""
        return anchor(self.question)


def read_whys() -> tuple[Why, ...]:
    """Read the questions and their answers."""
    entries = tomllib.loads(WHYS.read_text(encoding="utf-8").replace("{version}", __version__))["why"]
    return tuple(
        Why(entry["question"], entry["answer"], tuple(entry["rules"]), tuple(entry["words"].split(", ")))
        for entry in entries
    )


def names_of_whys(known: Known) -> list[Name]:
    """Return the names by which the questions are found."""
    return [
        Name(
            "question",
            why.question,
            f"questions.html#{why.place}",
            " ".join(f"{rule}: {known.rules[rule].title}." for rule in why.rules[:1]),
            why.words,
            why.answer,
        )
        for why in read_whys()
    ]

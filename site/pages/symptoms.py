"""The page of symptoms: what readers see, the rules that say what is right, and who does it."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pages.known import Known
from pages.page import Name, Part, anchor, make_page

from attnspec.backends.names import LIBRARY_NAMES, library_of

SYMPTOMS = Path(__file__).parents[1] / "symptoms.toml"


@dataclass(frozen=True)
class Symptom:
    """What readers see, in their words."""

    text: str
    rules: tuple[str, ...]
    threads: tuple[str, ...]
    words: str
    variants: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    answer: str = ""

    @property
    def place(self) -> str:
        """The anchor of the symptom."""
        return anchor(self.text)


def read_symptoms() -> tuple[Symptom, ...]:
    """Read the table of symptoms."""
    entries = tomllib.loads(SYMPTOMS.read_text(encoding="utf-8"))["symptom"]
    return tuple(
        Symptom(
            entry["text"],
            tuple(entry["rules"]),
            tuple(entry["threads"]),
            entry["words"],
            tuple(entry.get("variants", ())),
            tuple(entry.get("findings", ())),
            entry.get("answer", ""),
        )
        for entry in entries
    )


def symptoms(known: Known) -> Part:
    """Return the page of symptoms. Each is a name, by its own words and by those of its threads."""
    rows = [
        {
            "symptom": symptom,
            "libraries": _with_variant(symptom, known),
            "findings": [_finding(name, known) for name in symptom.findings],
            "others": any(symptom.rules[0] in finding.rules for finding in known.findings),
        }
        for symptom in read_symptoms()
    ]
    page = make_page(
        "symptoms",
        "symptoms.md",
        rows=rows,
        titles={key: rule.title for key, rule in known.rules.items()},
    )
    names = [
        Name(
            "symptom",
            row["symptom"].text,
            f"symptoms.html#{row['symptom'].place}",
            " ".join(f"{rule}: {known.rules[rule].title}." for rule in row["symptom"].rules[:1]),
            tuple(word.strip() for word in row["symptom"].words.split(",")),
            row["symptom"].answer,
        )
        for row in rows
    ]
    listed = Name(
        "page", "Symptoms", "symptoms.html", "what you see, the rule, and who does it", ("troubleshooting",)
    )
    return Part((page,), (listed, *names))


def _with_variant(symptom: Symptom, known: Known) -> list[tuple[str, str]]:
    """Return the libraries whose stored results show a variant of a symptom, by name."""
    shown = (
        library_of(column.backend)
        for column in known.keepers().values()
        if any(
            name in re.findall(r"[\w-]+", variant) or (" " in name and name in reason)
            for rule, _, name in (way.partition(":") for way in symptom.variants)
            for variant, reason in column.ways.get(rule, {}).values()
        )
    )
    return [(library, LIBRARY_NAMES[library]) for library in dict.fromkeys(shown)]


def _finding(name: str, known: Known) -> tuple[str, str]:
    """Return the address of a finding or of a family of findings, and what to call it."""
    folder, _, last = name.partition("/")
    if folder != "families":
        return f"findings/{folder}.html#{last}", name
    (family,) = (family for family in known.families if family.name == last)
    libraries = len({row.library for row in family.rows})
    return f"findings/families/{last}.html", f"{len(family.rows)} calls of {libraries} libraries"

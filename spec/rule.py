"""Rules, their variants and the levels of conformance, read from the chapters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Literal

from attnspec.errors import SpecError

#: The chapters in reading order; each is a file `CHAPTER.md` beside this one.
CHAPTERS = (
    "notation",
    "projection",
    "scores",
    "masking",
    "softmax",
    "heads",
    "caching",
    "packing",
    "paging",
    "quantization",
    "positions",
    "sparsity",
    "selection",
    "latent",
    "stacks",
    "sharding",
    "dropout",
    "gradients",
    "numerics",
    "invariance",
    "errors",
)

#: The line before the list of link targets at the end of a page.
DEFINITIONS = "<!-- rules -->"

Level = Literal["MUST", "SHOULD", "MAY"]

#: Examples in code are no text. A blank line ends a block of text, and so does an item of a list.
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_BREAK = re.compile(r"\n\s*\n|\n(?=- )")
_HEADING = re.compile(r"^#+ (?P<id>[A-Z]+-[1-9][0-9]*) (?P<title>\S.*)$")
_LEVEL = re.compile(r"\b(MUST|SHOULD|MAY)\b")
#: A link to a heading, to a definition at the end of the page, or to a rule. It is replaced by its text.
_LINK = re.compile(r"\[([^][`]+)\](?:\([^()\s]+\)|\[[a-z-]+\])|\[([A-Z]+-[1-9][0-9]*)\]")
_VARIANT = re.compile(r"^`(?P<name>[a-z0-9-]+)`: (?P<text>\S.*)$", re.DOTALL)


@dataclass(frozen=True)
class Variant:
    """A named behaviour that differs from a rule and that released code shows.

    Attributes
    ----------
    name : str
        Its name, by which a backend declares it, such as ``uniform``.
    text : str
        The behaviour, and the libraries that show it.
    """

    name: str
    text: str


@dataclass(frozen=True)
class Rule:
    """One normative sentence of the standard.

    Attributes
    ----------
    id : str
        A permanent id. It is never renumbered and never reused.
    title : str
        Its heading.
    level : {"MUST", "SHOULD", "MAY"}
        The requirement word of the sentence.
    sentence : str
        The sentence itself, on one line, without its links.
    chapter : str
        The chapter, as in `CHAPTERS`.
    variants : tuple of Variant
        The variants that the chapter lists for it.
    """

    id: str
    title: str
    level: Level
    sentence: str
    chapter: str
    variants: tuple[Variant, ...] = ()


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule of the standard, chapter by chapter in the order of the text.

    Raises
    ------
    SpecError
        If a chapter is missing, or a rule does not have the form that
        ``spec/README.md`` describes.

    Examples
    --------
    >>> from attnspec import rules
    >>> [rule.id for rule in rules() if rule.chapter == "softmax"][0]
    'SOFT-1'
    """
    results = [rule for chapter in CHAPTERS for rule in parse(chapter, _read(chapter))]
    ids = [rule.id for rule in results]
    for twice in {id_ for id_ in ids if ids.count(id_) > 1}:
        raise SpecError(f"rule {twice}: expected one heading, got two")
    return tuple(results)


def find_rule(rule_id: str) -> Rule:
    """Return the rule of an id.

    Raises
    ------
    SpecError
        If no chapter has a rule of that id.

    Examples
    --------
    >>> from attnspec import find_rule
    >>> find_rule("MASK-1").level
    'MUST'
    """
    rule = _rules_by_id().get(rule_id)
    if rule is not None:
        return rule
    near = ", ".join(get_close_matches(rule_id, [rule.id for rule in rules()], cutoff=0))
    raise SpecError(f"rule: expected an id such as {near}, got {rule_id!r}; `attnspec rules` lists them")


@cache
def _rules_by_id() -> Mapping[str, Rule]:
    return {rule.id: rule for rule in rules()}


@cache
def claimable() -> tuple[str, ...]:
    """Return the ids of the rules that an implementation can claim: each SHOULD, and each MAY.

    Examples
    --------
    >>> from attnspec import claimable
    >>> claimable()[-3:]
    ('INV-9', 'ERR-9', 'ERR-12')
    """
    return tuple(rule.id for rule in rules() if rule.level != "MUST")


def parse(chapter: str, text: str) -> list[Rule]:
    """Read the rules of one chapter."""
    results: list[Rule] = []
    heading: re.Match[str] | None = None
    variants_follow = False
    for block in _BREAK.split(_FENCED.sub("", text)):
        content = _without_links(" ".join(block.split()))
        item = block.startswith("- ")
        if block.startswith("#"):
            heading, variants_follow = _HEADING.match(content), False
        elif heading and not (results and results[-1].id == heading["id"]):
            if item:
                raise SpecError(
                    f"rule {heading['id']}: expected a sentence under the heading, got no paragraph"
                )
            results.append(_rule(chapter, heading, content))
        elif heading and variants_follow and item:
            results[-1] = _with_variant(results[-1], content.removeprefix("- "))
        elif not item:
            variants_follow = content.startswith("Variants")
    return results


def _without_links(text: str) -> str:
    return _LINK.sub(lambda link: link[1] or link[2], text)


def _rule(chapter: str, heading: re.Match[str], sentence: str) -> Rule:
    words = _LEVEL.findall(sentence)
    if len(words) != 1:
        raise SpecError(f"rule {heading['id']}: expected exactly one requirement word, got {words}")
    return Rule(heading["id"], heading["title"], words[0], sentence, chapter)


def _with_variant(rule: Rule, content: str) -> Rule:
    match = _VARIANT.match(content)
    if match is None:
        raise SpecError(f"rule {rule.id}: expected a variant '`name`: what happens instead', got {content!r}")
    variants = (*rule.variants, Variant(match["name"], match["text"]))
    return Rule(rule.id, rule.title, rule.level, rule.sentence, rule.chapter, variants)


def _read(chapter: str) -> str:
    path = Path(__file__).parent / f"{chapter}.md"
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(
            f"chapter {chapter}: expected the file {path.name} beside rule.py ({error})"
        ) from error


_SECTION = re.compile(r"^## (?P<name>.+)$", re.MULTILINE)
_ID = re.compile(r"\b[A-Z]+-[1-9][0-9]*\b")


@dataclass(frozen=True)
class ConformanceLevel:
    """A named set of rules.

    Attributes
    ----------
    name : str
        Its name, such as ``core``.
    rules : tuple of str
        The ids of rules that must be judged and hold.
    where_offered : tuple of str
        The ids of rules that must hold if they are judged.
    builds_on : str
        Another level that must be reached, or empty.
    accuracy : str
        The class of NUM-3 that every element must meet, or empty.
    """

    name: str
    rules: tuple[str, ...]
    where_offered: tuple[str, ...] = ()
    builds_on: str = ""
    accuracy: str = ""


@cache
def levels() -> tuple[ConformanceLevel, ...]:
    """Return every level, in the order of the page.

    Raises
    ------
    SpecError
        If the page cannot be read or has another form.

    Examples
    --------
    >>> from attnspec import levels
    >>> [level.name for level in levels()][:5]
    ['core', 'strict', 'masked', 'grouped', 'cached']
    """
    results = [_level(name, text) for name, text in _sections() if name != "In no level"]
    names = [level.name for level in results]
    for level in results:
        if not level.rules or level.builds_on not in ("", *names[: names.index(level.name)]):
            raise SpecError(f"level {level.name}: expected rules, and a level before it to build on")
    return tuple(results)


def in_no_level() -> tuple[str, ...]:
    """List the rules that the page lists as being in no level."""
    return tuple(_ID.findall(dict(_sections()).get("In no level", "")))


def _sections() -> list[tuple[str, str]]:
    path = Path(__file__).parent / "levels.md"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"levels: expected the file {path.name} beside level.py ({error})") from error
    _, *parts = _SECTION.split(text.partition(DEFINITIONS)[0])
    return list(zip(parts[::2], parts[1::2], strict=True))


def _level(name: str, text: str) -> ConformanceLevel:
    said = {}
    for paragraph in text.split("\n\n"):
        key, colon, rest = " ".join(paragraph.split()).partition(": ")
        if colon and key in ("Rules", "Where offered", "Builds on", "Accuracy"):
            said[key] = rest.rstrip(".")
    return ConformanceLevel(
        name,
        tuple(_ID.findall(said.get("Rules", ""))),
        tuple(_ID.findall(said.get("Where offered", ""))),
        said.get("Builds on", ""),
        said.get("Accuracy", ""),
    )

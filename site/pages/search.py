"""What the search by name knows: the names, the words by which readers look for them, and plain texts."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pages.page import Name, packed

from attnspec.conformance.render.html.page import script

#: Words by the kind and the name of what they find.
WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    (kind, name): tuple(words.split(", "))
    for kind, names in tomllib.loads(
        Path(__file__).parents[1].joinpath("words.toml").read_text(encoding="utf-8")
    ).items()
    for name, words in names.items()
}

_MATH = re.compile(r"\$([^$]+)\$")
_COMMAND = re.compile(r"\\(?:mathrm|text|operatorname)\{([^}]*)\}|\\([a-z]+)")
_REFERENCE = re.compile(r"!?\[([^][]*)\](?:\([^()\s]*\)|\[[a-z-]+\])?")


def plain(text: str) -> str:
    r"""Remove the markup of a text."""

    def formula(match: re.Match[str]) -> str:
        return (
            _COMMAND.sub(lambda command: command[1] or command[2], match[1]).replace("{", "").replace("}", "")
        )

    # Every second part is code, which stays as it is.
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        parts[place] = _REFERENCE.sub(r"\1", _MATH.sub(formula, parts[place])).replace("**", "")
    return " ".join("".join(parts).split())


def with_words(names: Iterable[Name], terms: Mapping[str, tuple[str, ...]]) -> tuple[Name, ...]:
    """Add the words by which readers look for names, and remove the markup of what is shown."""
    return tuple(
        replace(
            name,
            title=plain(name.title),
            text=plain(name.text),
            words=tuple(
                dict.fromkeys(
                    word.lower()
                    for word in (
                        *name.words,
                        *WORDS.get((name.kind, name.name), ()),
                        *(terms.get(name.name, ()) if name.kind == "rule" else ()),
                    )
                )
            ),
        )
        for name in names
    )


def names_script(names: Sequence[Name]) -> str:
    """Return the script that gives the search its names."""
    rows = [
        [name.kind, name.name, name.title, name.address, "|".join(name.words), name.text] for name in names
    ]
    return script("attnspecNames", packed(rows))

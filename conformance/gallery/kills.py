"""The stored kills of the gallery, `kills.json`. `python -m tools.gallery --write` measures them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnspec.case import SIZES as CHAPTER
from attnspec.conformance.verdict import Verdict

FILE = Path(__file__).with_name("kills.json")


@dataclass(frozen=True)
class Kill:
    """What kills an entry."""

    #: The cheapest case that reports the rule that it breaks. Empty if none does.
    case: str
    quick: bool  # whether the quick part of the suite kills it too
    #: A case that reports another rule, of the ordinary run or of ``--sizes``. Only if there is no
    #: `case`.
    other: str = ""
    reported: str = ""  # the rule that this case reports

    @property
    def ordinary(self) -> bool:
        """Whether a case of the ordinary run kills the entry, under any rule."""
        return bool(self.case or self.other) and not self.other.startswith(f"{CHAPTER}-")


def read_kills(path: Path = FILE) -> Mapping[str, Kill]:
    """Read what kills each wrong entry, by its name."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {name: Kill(**kill) for name, kill in content["kills"].items()}


def broken_rule(verdict: Verdict) -> str:
    """Return the rule of any level that a verdict says is broken. Empty if all rules hold.

    A MAY that is not shown counts as broken.
    """
    return "" if verdict.status in ("pass", "deviation") else verdict.rule

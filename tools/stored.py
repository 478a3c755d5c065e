"""The stored measurements of the gallery: ``kills.json`` in the gallery."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from attnspec.conformance.sizes.sized import CHAPTER
from tools.diagnosed import Counts
from tools.matrix import Finding

FILE = Path(__file__).resolve().parents[1] / "conformance" / "gallery" / "kills.json"


@dataclass(frozen=True)
class Kill:
    """What kills an entry.

    Attributes
    ----------
    case : str
        The cheapest case that reports the rule that it breaks. Empty if none does.
    quick : bool
        Whether the quick part of the suite kills it too.
    other : str
        A case that reports another rule, of the ordinary run or of ``--sizes``. Only if there is no `case`.
    reported : str
        The rule that this case reports.
    """

    case: str
    quick: bool
    other: str = ""
    reported: str = ""

    @property
    def ordinary(self) -> bool:
        """Whether a case of the ordinary run kills the entry, under any rule.

        Examples
        --------
        >>> from tools.stored import Kill
        >>> Kill("", quick=False, other="masking-a-float32", reported="MASK-1").ordinary
        True
        >>> Kill("", quick=False, other="sizes-views-1-float32", reported="NUM-8").ordinary
        False
        """
        return bool(self.case or self.other) and not self.other.startswith(f"{CHAPTER}-")


@dataclass(frozen=True)
class Stored:
    """The results of one measurement of the whole gallery.

    Attributes
    ----------
    kills : mapping of str to Kill
        The kills, by the names of the wrong entries.
    diagnosis : Counts
        The numbers of wrong entries that are named rightly and wrongly.
    """

    kills: Mapping[str, Kill]
    diagnosis: Counts


def kills(findings: Iterable[Finding], quick: Iterable[Finding]) -> dict[str, Kill]:
    """Take the kills from the findings of the whole suite and of its quick part.

    Examples
    --------
    >>> from tools.matrix import Finding
    >>> from tools.stored import kills
    >>> kills([Finding("a", "MASK-1", "c", 1, 0.1, {}, 1.0)], [])
    {'a': Kill(case='c', quick=False, other='', reported='')}
    """
    quickly = {one.entry for one in quick if one.killed_by}
    return {one.entry: Kill(one.killed_by, one.entry in quickly) for one in findings if one.rule}


def with_others(found: Mapping[str, Kill], others: Iterable[tuple[str, str, str]]) -> dict[str, Kill]:
    """Add the cases that report another rule, each with the name of its entry and the rule.

    Examples
    --------
    >>> from tools.stored import Kill, with_others
    >>> with_others({"a": Kill("", quick=False)}, [("a", "sizes-views-1-float32", "NUM-8")])
    {'a': Kill(case='', quick=False, other='sizes-views-1-float32', reported='NUM-8')}
    """
    added = {name: replace(found[name], other=case, reported=rule) for name, case, rule in others}
    return {**found, **added}


def read(path: Path = FILE) -> Stored:
    """Read the measurements.

    Examples
    --------
    >>> from tools.stored import read
    >>> read().kills["inverted_polarity"].quick
    True
    """
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found = {name: Kill(**kill) for name, kill in content["kills"].items()}
    return Stored(found, Counts(**content["diagnosis"]))


def write(stored: Stored, path: Path = FILE) -> None:
    """Write the measurements."""
    content = asdict(stored)
    for kill in content["kills"].values():
        for name in ("other", "reported"):
            if not kill[name]:
                del kill[name]
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8", newline="\n")

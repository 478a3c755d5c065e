"""What a diagnosis names, and how it says so."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnspec.conformance.gallery import Entry
from attnspec.conformance.report.because import in_words


@dataclass(frozen=True)
class Diagnosis:
    """What fits.

    Attributes
    ----------
    entries : tuple of Entry
        Those that give what the backend gives.
    failing, passing : int
        How many calls were compared that it fails, and that it passes.
    share : float
        How far off they are at most, in budgets.
    fits, good : int
        On how many of these the results are the same.
    apart : tuple of str
        Traits of which all other calls have one; empty where there are none.
    path : (str, bool) or None
        The trait by which the calls are told on which the backend has the bug, and whether they have it.
    """

    entries: tuple[Entry, ...]
    failing: int
    passing: int
    share: float
    fits: int
    good: int
    apart: tuple[str, ...] = ()
    path: tuple[str, bool] | None = None

    def __str__(self) -> str:
        names = ", or ".join(map(_in_words, by_kin(self.entries).values()))
        calls = f"{self.fits} of {self.failing} failing cases, {self.good} of {self.passing} passing ones"
        if self.path:
            trait, has = self.path
            where = f"in calls {in_words(trait)} alone" if has else f"but not in calls {in_words(trait)}"
            return f"similar to: {names}, {where} (the same on {calls})"
        if self.apart:
            kinds = " or ".join(map(in_words, self.apart))
            others = f"all other cases are calls {kinds}, where it gives something else"
            return f"similar to: {names} (the same on {calls}; {others})"
        if (self.fits, self.good) != (self.failing, self.passing):
            return f"similar to: {names} (the same on {calls})"
        return f"consistent with: {names} ({calls}, within {self.share:.1f} budgets)"


def by_kin(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Put entries together that differ in a size alone."""
    found: dict[str, list[Entry]] = {}
    for one in entries:
        found.setdefault("".join(letter for letter in one.name if not letter.isdigit()), []).append(one)
    return found


def _in_words(kin: Sequence[Entry]) -> str:
    """Say what the first of a kin does, and name the others."""
    names = " or ".join(one.name for one in kin)
    return f"{names} ({kin[0].sentence.rstrip('.')}; {kin[0].rule})"

"""The result of a diagnosis, and its text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnspec.conformance.gallery import Entry
from attnspec.conformance.render.because import in_words


@dataclass(frozen=True)
class Diagnosis:
    """The entries that fit a backend, and how well they fit.

    Attributes
    ----------
    entries : tuple of Entry
        The entries that have the results of the backend.
    failing, passing : int
        The number of compared calls that the backend fails, and that it passes.
    share : float
        The largest distance between the results, in budgets.
    fits, good : int
        The number of failing and of passing calls on which the results are the same.
    apart : tuple of str
        Traits of the other calls. Each of these calls has one of them. Empty if there are no other calls.
    path : (str, bool) or None
        The trait that distinguishes the calls on which the backend has the bug, and whether these calls
        have the trait.
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
            where = f"only in calls {in_words(trait)}" if has else f"but not in calls {in_words(trait)}"
            return f"similar to: {names}, {where} (the same on {calls})"
        if self.apart:
            kinds = " or ".join(map(in_words, self.apart))
            others = f"all other cases are calls {kinds}, and have other results"
            return f"similar to: {names} (the same on {calls}; {others})"
        if (self.fits, self.good) != (self.failing, self.passing):
            return f"similar to: {names} (the same on {calls})"
        return f"consistent with: {names} ({calls}, within {self.share:.1f} budgets)"


def by_kin(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Group entries that differ only in a size."""
    found: dict[str, list[Entry]] = {}
    for one in entries:
        found.setdefault("".join(letter for letter in one.name if not letter.isdigit()), []).append(one)
    return found


def _in_words(kin: Sequence[Entry]) -> str:
    """Name the entries of a group, and describe the first."""
    names = " or ".join(one.name for one in kin)
    return f"{names} ({kin[0].sentence.rstrip('.')}; {kin[0].rule})"

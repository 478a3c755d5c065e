"""Declared deviations from rules, and the releases that they apply to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from attnspec.backends.outcome import OUTCOMES, Outcome


@dataclass(frozen=True)
class Deviation:
    """A known way in which an implementation breaks a rule, without a variant that describes it.

    Declare it as narrowly as possible: a failure that it does not cover is a failure, and so is a
    result other than it states. Every whole run of the suite must show it.

    Attributes
    ----------
    rules : tuple of str
        The rule that is broken, and other rules under which the suite may report it. With `when`
        it covers each call for which that is true, whatever the rule.
    reason : str
        What the implementation does instead.
    source : str
        A script in ``backends/findings`` that shows it with the library alone, or a link.
    outcome : outcome or tuple of outcomes
        What the call gives instead, as in `attnspec.backends.outcome`. Several apply together, each
        to the call as those before it change it.
    dtypes, outputs : tuple of str
        The dtypes and outputs that show it; empty for all.
    versions : str
        The library releases that it applies to, as a version specifier; empty for those of the backend.
    groups : tuple of str
        The groups of generated cases that show it; empty for all. Use this if `when` cannot
        express the condition.
    when : callable, optional
        Whether a call with the given arguments shows it.

    Examples
    --------
    >>> from attnspec.backends import Deviation
    >>> from attnspec.backends.outcome import Special, every_element
    >>> nan = Special(every_element)
    >>> deviation = Deviation(("ERR-6",), "any scale is taken", "torch/scale_not_finite", nan)
    >>> deviation.id
    'ERR-6 torch/scale_not_finite'
    >>> deviation.covers("ERR-6", {}), deviation.covers("ERR-5", {})
    (True, False)
    """

    rules: tuple[str, ...]
    reason: str
    source: str
    outcome: Outcome | tuple[Outcome, ...]
    dtypes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    versions: str = ""
    groups: tuple[str, ...] = ()
    when: Callable[[Mapping[str, Any]], bool] | None = None

    def __post_init__(self) -> None:
        if not self.outcomes or not all(isinstance(outcome, OUTCOMES) for outcome in self.outcomes):
            known = ", ".join(kind.__name__ for kind in OUTCOMES)
            raise TypeError(f"outcome: expected one or several of {known}, got {self.outcome!r}")

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What the call gives instead, as a tuple."""
        return self.outcome if isinstance(self.outcome, tuple) else (self.outcome,)

    @property
    def id(self) -> str:
        """The id, unique in its backend."""
        return f"{self.rules[0]} {self.source}"

    @property
    def is_general(self) -> bool:
        """Whether it covers every call of its rules."""
        return not (self.dtypes or self.outputs or self.groups or self.when)

    def covers(
        self, rule: str, arguments: Mapping[str, Any], *, dtype: str = "", output: str = "", group: str = ""
    ) -> bool:
        """Whether the deviation covers a broken rule in a given call.

        Parameters
        ----------
        rule : str
            The rule that is broken.
        arguments : mapping
            The arguments of the call, as NumPy arrays.
        dtype, output, group : str, optional
            The dtype of the call, the output that is wrong, and the group of the case.
        """
        return (
            (self.when is not None or rule in self.rules)
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.outputs or output in self.outputs)
            and (not self.groups or group in self.groups)
            and self._is_in_region(arguments)
        )

    def _is_in_region(self, arguments: Mapping[str, Any]) -> bool:
        try:
            return self.when is None or bool(self.when(arguments))
        except (LookupError, TypeError, ValueError, AttributeError):  # malformed, or of another operation
            return False


def is_range(versions: str) -> bool:
    """Whether a text is a version specifier; an empty one allows all versions."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # few backends have one

    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        return False
    return True


def holds(versions: str, version: str) -> bool:
    """Whether a version matches a specifier; an invalid version matches only an empty one."""
    if not versions:
        return True
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False

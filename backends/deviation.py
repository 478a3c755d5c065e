"""Deviations: what an implementation is known to do against a rule, and for which releases that is said."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True)
class Deviation:
    """What an implementation is known to do against a rule, without a variant that says it.

    It is as narrow as possible: what it does not cover is a failure as ever. It has to
    show in every whole run of the suite.

    Attributes
    ----------
    rules : tuple of str
        The rule that is broken, and others to which the suite may trace the same thing.
    reason : str
        What happens instead, in a few words.
    source : str
        A script in ``backends/findings`` that shows it with the library alone, or a link.
    dtypes, outputs : tuple of str
        Those that it shows in; all where empty.
    versions : str
        The releases that it is said of, as pip writes a range; where empty, those of its backend.
    groups : tuple of str
        The groups of generated cases that show it, by their exact names; all where empty. For what
        `when` cannot tell.
    when : callable, optional
        Tells whether a call, by its arguments, is one of those that show it.

    Examples
    --------
    >>> from attnspec.backends import Deviation
    >>> deviation = Deviation(("ERR-6",), "any scale is taken", "torch/scale_not_finite")
    >>> deviation.id
    'ERR-6 torch/scale_not_finite'
    >>> deviation.covers("ERR-6", {}), deviation.covers("ERR-5", {})
    (True, False)
    """

    rules: tuple[str, ...]
    reason: str
    source: str
    dtypes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    versions: str = ""
    groups: tuple[str, ...] = ()
    when: Callable[[Mapping[str, Any]], bool] | None = None

    @property
    def id(self) -> str:
        """By which it is told from others of the same backend."""
        return f"{self.rules[0]} {self.source}"

    @property
    def is_general(self) -> bool:
        """Whether it is of every call that its rule is about."""
        return not (self.dtypes or self.outputs or self.groups or self.when)

    def covers(
        self, rule: str, arguments: Mapping[str, Any], *, dtype: str = "", output: str = "", group: str = ""
    ) -> bool:
        """Whether a rule that is broken is one that is declared, for just such a call.

        Parameters
        ----------
        rule : str
            The rule that is broken.
        arguments : mapping
            Those of the call that shows it, as NumPy arrays.
        dtype, output, group : str, optional
            That of the call, the output that shows it, and the group of the case.
        """
        return (
            rule in self.rules
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.outputs or output in self.outputs)
            and (not self.groups or group in self.groups)
            and (self.when is None or self.when(arguments))
        )


def is_range(versions: str) -> bool:
    """Whether a text is a range of versions; an empty one is that of all.

    Examples
    --------
    >>> from attnspec.backends.deviation import is_range
    >>> is_range(">=2.13,<2.14"), is_range("2.13")
    (True, False)
    """
    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        return False
    return True


def holds(versions: str, version: str) -> bool:
    """Whether a version is in a range; one that is none as pip knows them is in no range but that of all.

    Examples
    --------
    >>> from attnspec.backends.deviation import holds
    >>> holds(">=2.13,<2.14", "2.13.0+cpu"), holds(">=2.13,<2.14", "2.14.1"), holds("", "of today")
    (True, False, True)
    """
    if not versions:
        return True
    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False

"""Declared deviations from rules, and the releases that they apply to."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Deviation:
    """A known way in which an implementation breaks a rule, without a variant that describes it.

    Declare it as narrowly as possible: a failure that it does not cover is a failure. Every
    whole run of the suite must show it.

    Attributes
    ----------
    rules : tuple of str
        The rule that is broken, and other rules under which the suite may report it.
    reason : str
        What the implementation does instead.
    source : str
        A script in ``backends/findings`` that shows it with the library alone, or a link.
    dtypes, outputs : tuple of str
        The dtypes and outputs that show it; empty for all.
    versions : str
        The library releases that it applies to, as a version specifier; empty for those of the backend.
    groups : tuple of str
        The groups of generated cases that show it; empty for all. Use this if `when` cannot
        express the condition.
    when : callable, optional
        Whether a call with the given arguments shows it.
    within : float, optional
        The largest absolute error that it covers. It then covers no relation between several calls,
        no sized case and no output that differs in where it is NaN or infinite.

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
    within: float | None = None

    @property
    def id(self) -> str:
        """The id, unique in its backend."""
        return f"{self.rules[0]} {self.source}"

    @property
    def is_general(self) -> bool:
        """Whether it covers every call of its rules."""
        return not (self.dtypes or self.outputs or self.groups or self.when or self.within)

    def covers(
        self,
        rule: str,
        arguments: Mapping[str, Any],
        *,
        dtype: str = "",
        output: str = "",
        group: str = "",
        error: float = math.inf,
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
        error : float, optional
            The largest absolute error of the output.
        """
        return (
            rule in self.rules
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.outputs or output in self.outputs)
            and (not self.groups or group in self.groups)
            and (self.within is None or error <= self.within)
            and (self.when is None or self.when(arguments))
        )


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

"""The selection of cases of a run."""

from dataclasses import dataclass

from attnspec import claimable


@dataclass(frozen=True)
class Selection:
    """The selection of cases of a run.

    Attributes
    ----------
    quick : bool
        Only the fixed part that touches every rule.
    rules : tuple of str
        Only cases that bear on one of these rules.
    names : tuple of str
        Only the cases of these ids or names, or in these files of cases.
    match : tuple of str
        Only cases whose name, group or rules hold one of these texts, or fit one as a pattern.
    level : str
        The level whose rules they are; empty where they are not those of one.
    seed : int or None
        The seed of the generated cases. None selects the fixed cases.
    sizes : bool
        The sizes instead of the suite: calls by formula at the sizes at which kernels take other paths.
    within : float
        The seconds that a run of the sizes may take.
    untrusted : bool
        Whether the implementation is not trusted: cases come in a drawn order, with copies of them in
        which a number is changed.
    memory : float
        The memory in GiB that a case of the sizes may use. 0 allows half of the memory of the machine.
    fits : str
        The constraints that generated cases fit, in the form of
        `attnspec.backends.constraints.Constraints.suffix`. Empty if the backend takes every call.
    """

    quick: bool = False
    rules: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    match: tuple[str, ...] = ()
    level: str = ""
    seed: int | None = None
    fits: str = ""
    sizes: bool = False
    within: float = 600.0
    memory: float = 0.0
    untrusted: bool = False

    @property
    def part(self) -> str:
        """The part of the suite: ``whole``, ``level``, ``quick``, ``sizes`` or ``chosen``."""
        if self.level and not (self.quick or self.sizes or self.names or self.match):
            return "level"
        if self.rules or self.names or self.match:
            return "chosen"
        if self.sizes:
            return "sizes"
        return "quick" if self.quick else "whole"

    @property
    def choice(self) -> tuple[str, ...]:
        """The options that choose the cases, as on the command line, if `part` and the seed do not say it."""
        chosen = self.part == "chosen"
        flags = {"--quick": self.quick and chosen, "--sizes": self.sizes and chosen}
        level = (self.level,) if self.level else ()
        words = {
            "--level": level,
            "--rule": () if level else self.rules,
            "-k": self.match,
            "--case": self.names,
        }
        return (
            *(flag for flag, given in flags.items() if given),
            *(f"{option} {word}" for option, given in words.items() for word in sorted(set(given))),
        )

    def shows(self, rule: str) -> bool:
        """Whether a run must show the declarations about a rule.

        A whole run must show all of them. A run of one level must show the claims of its rules, because
        it has every case about them.
        """
        return self.part == "whole" or (self.part == "level" and rule in {*self.rules} & {*claimable()})

    @property
    def files(self) -> tuple[str, ...]:
        """The files of cases among the names."""
        return tuple(name for name in self.names if name.endswith(".json"))

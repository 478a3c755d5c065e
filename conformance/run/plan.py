"""Plan a run: select outlines of cases, which say what a backend must offer, and hold no arrays.

The outlines of the fixed suite are stored in ``suite/index.json.xz``. `attnspec vectors expected` writes it
beside the expected values. `attnspec.conformance.run.cases` makes the cases of all other plans.
"""

import json
import lzma
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from attnspec import SpecError, claimable, find_rule
from attnspec.conformance.traits import SPECIAL


@dataclass(frozen=True)
class Selection:
    """The selection of cases of a run."""

    quick: bool = False  # only the fixed part that touches every rule
    rules: tuple[str, ...] = ()  # only cases that bear on one of these rules
    names: tuple[str, ...] = ()  # only the cases of these ids or names, or in these files of cases
    #: Only cases whose name, group or rules hold one of these texts, or fit one as a pattern.
    match: tuple[str, ...] = ()
    level: str = ""  # the level whose rules they are; empty where they are not those of one
    #: The seed of the generated cases. None selects the fixed cases.
    seed: int | None = None
    #: The constraints that generated cases fit, in the form of
    #: `attnspec.backends.constraints.Constraints.suffix`. Empty if the backend takes every call.
    fits: str = ""
    #: The fixed cases, by group and name, that alone are drawn to fit the constraints. Empty for all.
    drawn: tuple[tuple[str, str], ...] = ()
    #: The sizes instead of the suite: calls by formula at the sizes at which kernels take other paths.
    sizes: bool = False
    within: float = 600.0  # the seconds that a run of the sizes may take
    #: The memory in GiB that a case of the sizes may use. 0 allows half of the memory of the machine.
    memory: float = 0.0
    #: Whether the implementation is not trusted: cases come in a drawn order, with copies of them in which a
    #: number is changed.
    untrusted: bool = False
    smoke: bool = False  # only the smallest calls of it: one for each rule, set of arguments and argument
    #: The dtype of the smallest calls, for a backend that has neither float32 nor float64.
    dtype: str = ""
    shard: str = ""  # the share of the cases to judge, such as ``3/8``. Empty for all.

    @property
    def part(self) -> str:
        """The part of the suite: ``whole``, ``level``, ``quick``, ``smoke``, ``sizes`` or ``chosen``."""
        if self.level and not (self.quick or self.smoke or self.sizes or self.names or self.match):
            return "level"
        if self.rules or self.names or self.match:
            return "chosen"
        if self.sizes:
            return "sizes"
        if self.smoke:
            return "smoke"
        return "quick" if self.quick else "whole"

    @property
    def choice(self) -> tuple[str, ...]:
        """The options that choose the cases, as on the command line, if `part` and the seed do not say it."""
        chosen = self.part == "chosen"
        flags = {
            "--quick": self.quick and chosen,
            "--smoke": self.smoke and chosen,
            "--sizes": self.sizes and chosen,
        }
        level = (self.level,) if self.level else ()
        words = {
            "--shard": (self.shard,) if self.shard else (),
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


PATH = Path(__file__).parents[1] / "suite" / "index.json.xz"


class CallOutline(NamedTuple):
    """A call without its numbers."""

    operation: str
    arguments: tuple[str, ...]


class Outline(NamedTuple):
    """A case without its arrays.

    `calls` is empty if more than the first line is not known before the case is made. `dtypes` are those that
    a backend needs. `fault` is the argument at fault, `variants` whether the case has values of variants.
    """

    name: str
    group: str
    rules: tuple[str, ...]
    dtype: str
    refusal: bool = False

    calls: tuple[CallOutline, ...] = ()
    related: bool = False
    dtypes: tuple[str, ...] = ()
    fault: str = ""
    variants: bool = False
    traits: tuple[str, ...] = ()
    numbers: int = 0
    sizes: tuple[int, ...] = ()
    #: Whether it is in the quick part: 1, or 2 after the other cases of its group.
    quick: int = 0

    @property
    def id(self) -> str:
        """The name without the dtype."""
        return self.name.removesuffix(f"-{self.dtype}")


def is_indexed(selection: Selection) -> bool:
    """Whether the index has the cases of a selection: fixed cases, which fit no constraints."""
    other = selection.fits or selection.sizes or selection.untrusted or selection.files
    return selection.seed is None and not other and not any("+" in name for name in selection.names)


def plan_of(selection: Selection) -> tuple[Outline, ...]:
    """Select outlines of the index."""
    from attnspec.conformance.run.smallest import smallest  # which reads the index too

    for rule in selection.rules:
        find_rule(rule)
    rules, names = set(selection.rules), set(selection.names)
    plan = [
        outline
        for outline in index(selection.names)
        if (not selection.quick or outline.quick)
        and (not selection.smoke or outline.name in smallest(selection.dtype))
        and (not rules or not rules.isdisjoint(outline.rules))
        and (not names or outline.name in names or outline.id in names)
    ]
    if selection.quick:
        plan = [case for _, own in groupby(plan, attrgetter("group")) for case in sorted(own, key=_quick)]
    if selection.smoke:
        plan.sort(key=lambda outline: SPECIAL in outline.traits)  # NaN shows any bug
    require(selection, {name for outline in plan for name in (outline.name, outline.id)})
    match = selection.match
    return tuple(case for case in plan if matches((case.name, case.group, *case.rules), match))


def share(plan: tuple[Outline, ...], shard: str) -> tuple[tuple[int, Outline], ...]:
    """Select the cases of a shard, each with its place in the plan.

    A digest of the name chooses the shard, so that a case stays in its shard if others are added.
    """
    number, count = map(int, shard.split("/"))
    return tuple(
        (place, case)
        for place, case in enumerate(plan)
        if int.from_bytes(blake2b(case.name.encode(), digest_size=4).digest()) % count == number - 1
    )


def require(selection: Selection, names: Collection[str]) -> None:
    """Refuse a selected name that is neither an id nor a name of a case."""
    for name in selection.names:
        if name not in names and not selection.rules:
            raise SpecError(f"case: expected an id such as masking-empty-last, got {name!r}")


def matches(names: Iterable[str], texts: Collection[str]) -> bool:
    """Whether one of the names of a case, its group and its rules has a text, or fits one as a pattern."""
    wanted = [text.lower() for text in texts]
    return not wanted or any(
        text in name or fnmatchcase(name, text) for name in map(str.lower, names) for text in wanted
    )


_quick = attrgetter("quick")


@cache
def index(names: tuple[str, ...] = ()) -> tuple[Outline, ...]:
    """Read the outlines of the cases of the fixed suite, in their order.

    If some ids or names are given, only the groups that may have those cases are read.
    """
    text = lzma.decompress(PATH.read_bytes()).decode()
    head, _, rest = text.partition(',\n"groups": [\n')
    groups = rest.removesuffix("\n]}\n").split(",\n")
    if names:
        groups = [line for line in groups if _may_have(line, names)]
    document = {key: [tuple(each) for each in own] for key, own in json.loads(f"{head}}}")["shared"].items()}
    calls = [tuple(CallOutline(name, tuple(own)) for name, own in each) for each in document["calls"]]
    return tuple(
        Outline(
            f"{group['id']}{number}-{dtype}",
            group["group"],
            document["rules"][rules],
            dtype,
            bool(fault),
            calls[call],
            "r" in flags,
            document["dtypes"][dtypes],
            "".join(fault),
            "v" in flags,
            document["traits"][traits],
            count,
            document["sizes"][sizes],
            flags.count("q"),
        )
        for group in json.loads(f"[{','.join(groups)}]")
        for number, dtype, rules, call, dtypes, traits, sizes, count, flags, *fault in group["cases"]
    )


def _may_have(line: str, names: Iterable[str]) -> bool:
    """Whether a line of the index may have one of some cases: golden vectors have no common beginning."""
    beginning = line.partition('"id":"')[2].partition('"')[0]
    return any(
        name.startswith(beginning) if beginning else f'"{name.rpartition("-")[0]}' in line for name in names
    )

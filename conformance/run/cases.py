"""The cases of a run: makes the plans that the index does not have, and each case when it is judged."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from attnspec import Case, find_rule
from attnspec.backends.constraints import ANY, FITTED, Constraints
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.judge.traits import numbers
from attnspec.conformance.run.plan import Outline, Selection, index, matches, require
from attnspec.conformance.run.smallest import smallest
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.suite import constraints_in, groups_of, items
from attnspec.conformance.suite.group import Item
from attnspec.conformance.traits import SIZED_GROUPS
from attnspec.golden import cases_of, read_cases

#: The numbers of a small case, and how many of them are kept.
_SMALL, _MOST_KEPT = 2000, 2000


#: The end of the id of a copy with a changed number, and the group of the problems of which some rows are
#: judged: both are made for an implementation that is not trusted.
CHANGED, ROWS = "-changed", "untrusted: rows"


class Cases:
    """Finds cases by their names. Those of a plan that it has made are kept."""

    def __init__(self, seed: int | None = None, files: tuple[str, ...] = ()) -> None:
        self.seed = seed
        self.files = files
        self._planned: dict[str, Item | SizedCase] = {}
        #: The latest small cases, which a diagnosis calls again.
        self._latest: dict[str, Item | SizedCase] = {}

    def plan(self, selection: Selection, constraints: Constraints = ANY) -> tuple[Outline, ...]:
        """Make the selected cases."""
        for rule in selection.rules:
            find_rule(rule)
        if selection.drawn:
            return self._keep([*_draw_fitting(selection, constraints)])
        made = [*(_sized_cases(selection) if selection.sizes else self._make_items(selection, constraints))]
        if selection.untrusted and not selection.sizes:
            from attnspec.conformance.run import untrusted

            made = untrusted.plan(made, self.seed or 0, selection.names)
        require(selection, {*self.files, *(name for case in made for name in (case.id, case.name))})
        made = [case for case in made if matches((case.name, case.group, *case.rules), selection.match)]
        if selection.smoke:
            added = FITTED + constraints.suffix
            names = smallest(selection.dtype)
            made = [case for case in made if case.name.replace(added, "", constraints != ANY) in names]
        return self._keep(made)

    def _keep(self, made: Sequence[Item | SizedCase]) -> tuple[Outline, ...]:
        self._planned = {case.name: case for case in made}
        return tuple(Outline(case.name, case.group, case.rules, case.dtype, case.refusal) for case in made)

    def _make_items(self, selection: Selection, constraints: Constraints) -> Iterator[Item]:
        # A copy with a changed number is made of a case without it.
        names = [name_without_change(name) for name in selection.names]
        made = items(rules=selection.rules, names=names, seed=self.seed, constraints=constraints)
        if not selection.quick:
            return made
        fitted = FITTED + constraints.suffix if constraints != ANY else ""
        quick = {outline.name for outline in index() if outline.quick}
        return (case for case in made if case.name.replace(fitted, "") in quick)

    def find(self, name: str, group: str, constraints: Constraints = ANY) -> Item | SizedCase:
        """Make a case, unless it is kept."""
        if name in self._planned:
            return self._planned[name]
        if name not in self._latest:
            case = self._make(name, group, constraints)
            if isinstance(case, Case) and numbers(case.calls) < _SMALL:
                if len(self._latest) >= _MOST_KEPT:
                    self._latest.clear()
                self._latest[name] = case
            return case
        return self._latest[name]

    def _untrusted_case(self, name: str, group: str, constraints: Constraints) -> Item | SizedCase:
        from attnspec.conformance.run.untrusted import change, rows

        if group == ROWS:
            return next(case for case in rows(self.seed or 0) if case.name == name)
        case = self.find(name_without_change(name), group, constraints)
        assert isinstance(case, Case)  # noqa: S101 - for the type checker: only cases are copied
        return change(case, self.seed or 0)

    def _make(self, name: str, group: str, constraints: Constraints) -> Item | SizedCase:
        if group == ROWS or name_without_change(name) != name:
            return self._untrusted_case(name, group, constraints)
        if group.startswith(SIZED_GROUPS):
            return next(case for case in _sized_cases(Selection()) if case.name == name)
        chapter = name.partition("-")[0]
        made: dict[str, Item] = {}
        if group:
            suffix = (constraints_in([name]) or constraints).suffix
            made, others = _group_cases(chapter, group, self.seed, suffix)
            while name not in made and (case := next(others, None)):  # the later ones need not be made
                made[case.name] = case
        known = made or _golden(chapter, name.rpartition("-")[0])
        return known.get(name) or _file_cases(self.files)[name]


def name_without_change(name: str) -> str:
    """Return the name, or the id, of the case that a case with a changed number is a copy of."""
    id_, dash, dtype = name.rpartition("-")
    if name.endswith(CHANGED):
        return name.removesuffix(CHANGED)
    return id_.removesuffix(CHANGED) + dash + dtype


def _draw_fitting(selection: Selection, constraints: Constraints) -> Iterator[Item]:
    """Draw the chosen fixed cases of each group to fit constraints, and none after the last of them."""
    of_groups: dict[tuple[str, str], set[str]] = {}
    for group, name in selection.drawn:
        of_groups.setdefault((name.partition("-")[0], group), set()).add(name)
    for (chapter, group), left in of_groups.items():
        for case in _items(chapter, group, None, constraints):
            if (plain := case.name.replace(FITTED + constraints.suffix, "")) in left:
                left.remove(plain)
                yield case
            if not left:
                break


def _sized_cases(selection: Selection) -> Iterator[SizedCase]:
    """Select sized cases by their rules and names."""
    from attnspec.conformance.sizes.cases import sized_cases  # imports every group of them

    rules, names = set(selection.rules), set(selection.names)
    for case in sized_cases():
        if (not rules or rules & set(case.rules)) and (not names or {case.id, case.name} & names):
            yield case


@lru_cache(maxsize=2)
def _group_cases(
    chapter: str, group: str, seed: int | None, suffix: str
) -> tuple[dict[str, Item], Iterator[Item]]:
    """Return the cases of a group that are made, and the others; they are requested one after the other."""
    constraints = Constraints.of_suffix(suffix) if suffix else ANY
    return {}, _items(chapter, group, seed, constraints)


def _items(chapter: str, group: str, seed: int | None, constraints: Constraints) -> Iterator[Item]:
    of_group = (each for each in groups_of(chapter) if each.name == group)
    return (case for each in of_group for case in each.items(seed, constraints))


@lru_cache(maxsize=8)
def _golden(chapter: str, id_: str) -> dict[str, Item]:
    """Return a golden vector in each of its dtypes; empty if the id is unknown."""
    return {item.name: item for case in cases_of(chapter) if case.id == id_ for item in in_each(case)}


@lru_cache(maxsize=1)
def _file_cases(files: tuple[str, ...]) -> dict[str, Item]:
    return {case.name: case for file in files for case in read_cases(Path(file))}

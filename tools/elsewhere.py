"""Kills under another rule and by ``--sizes``: of entries that the cases of their own rule do not kill."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attnspec.backends import Backend
from attnspec.conformance.gallery import Entry, entry
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.sizes import sized
from attnspec.conformance.sizes.judge import judge_sized
from attnspec.conformance.sizes.sized import Sized
from attnspec.conformance.suite import items
from attnspec.conformance.suite.group import Item
from attnspec.conformance.verdict import Verdict
from tools.stored import Kill

#: The most multiplications of a sized case that is judged here.
WORK = 2**32


def elsewhere(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each entry that any case kills, the case, and the rule that it reports.

    The cases of the ordinary run come first, in a fixed random order, because neighbours kill the same
    entries. Then come those of ``--sizes`` with little work, the least first.

    Examples
    --------
    >>> from tools.elsewhere import killed
    >>> from attnspec.conformance.suite import find
    >>> case = find("masking-boolean-mask-keys-3-float32")
    >>> list(killed(["inverted_polarity", "no_shift"], [case]))
    [('inverted_polarity', 'masking-boolean-mask-keys-3-float32', 'MASK-1')]
    """
    left = list(names)
    ordinary = list(items())
    mixed = (ordinary[index] for index in np.random.default_rng(1).permutation(len(ordinary)))
    # Where all rows are different, the judged ones are chosen anew in each run: a kill is not certain.
    certain = (one for one in sized() if one.work <= WORK and one.formula.words)
    for suite in (mixed, certain):
        for found in killed(left, suite):
            left.remove(found[0])
            yield found


def unconfirmed(kills: Mapping[str, Kill]) -> Iterator[str]:
    """Yield the entries for which the case that is stored does not report the rule that is stored."""
    found: dict[str, Item | Sized] = {item.name: item for item in (*items(), *sized())}
    for name, kill in kills.items():
        case = found.get(kill.other)
        if case is None or _judged(entry(name).backend(), case).rule != kill.reported:
            yield name


def killed(names: Sequence[str], suite: Iterable[Item | Sized]) -> Iterator[tuple[str, str, str]]:
    """Judge only the entries whose steps return other bits in a case than the plain entry's."""
    alive: dict[tuple[str, ...], list[Entry]] = {}
    for name in names:
        alive.setdefault(entry(name).lacks, []).append(entry(name))
    for item in suite:
        for lacks, entries in alive.items():
            if not entries:
                continue
            backend, noted = replace(entry("plain"), lacks=lacks).beside(entries)
            _judged(backend, item)
            for one in [one for one in entries if one.name in noted]:
                verdict = _judged(one.backend(), item)
                if verdict.status in ("fail", "error"):
                    entries.remove(one)
                    yield one.name, item.name, verdict.rule


def _judged(backend: Backend, item: Item | Sized) -> Verdict:
    return judge_sized(backend, item) if isinstance(item, Sized) else judge(backend, item)

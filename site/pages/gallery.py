"""The gallery: the wrong implementations of each rule, and what finds them. The pictures of all of it."""

import json
from collections import Counter

from pages.known import Known
from pages.page import Name, Page, Part, make_page

from attnspec.conformance.gallery import correct_entries
from attnspec.conformance.gallery.entry import KINDS, PLACE, Entry
from tools.pictures import MASKS

#: Sizes of the chart, in units of its own.
_CHART = {"bar": 16, "row": 26, "label": 210, "width": 620}


def gallery(known: Known) -> Part:
    """Return a page for each rule, and their list."""
    by_rule: dict[str, list[Entry]] = {}
    for entry in known.entries:
        by_rule.setdefault(entry.rule, []).append(entry)
    pages = [_index(known, by_rule)]
    names = []
    for rule, entries in by_rule.items():
        path = f"gallery/{rule}"
        pages.append(
            make_page(
                path,
                "gallery_of_rule.md",
                rule=known.rules[rule],
                place=PLACE,
                kinds=KINDS,
                entries=[(entry, known.kills.get(entry.name)) for entry in entries],
            )
        )
        names += [Name("entry", entry.name, f"{path}.html#{entry.name}", entry.sentence) for entry in entries]
    names += [
        Name("entry", entry.name, f"gallery/index.html#{entry.name}", f"correct: {entry.sentence}")
        for entry in correct_entries()
    ]
    return Part(tuple(pages), tuple(names))


def pictures(known: Known) -> Part:
    """Return the page of pictures: masks, what acceptance rules let through, and the kill matrix."""
    path = known.root / "conformance" / "acceptance.json"
    figures = json.loads(path.read_text(encoding="utf-8"))
    rules, wrong = figures["rules"], figures["wrong"]
    kinds = {entry.name: entry.kind for entry in known.entries}
    total: Counter[str] = Counter()
    accepted: Counter[tuple[str, int]] = Counter()
    for name, letters in wrong.items():
        kind = kinds.get(name, "")
        total[kind] += 1
        accepted.update((kind, place) for place, letter in enumerate(letters) if letter != "-")
    by_kind = {kind: [entry for entry in known.entries if entry.kind == kind] for kind in KINDS}
    drawn = make_page(
        "pictures",
        "pictures.md",
        masks=MASKS,
        wrong=len(wrong),
        chart=_CHART,
        accepted=[
            (rule, sum(letters[place] != "-" for letters in wrong.values()))
            for place, rule in enumerate(rules)
        ],
        classes=[
            (text, total[kind], [100 * accepted[kind, place] / total[kind] for place in range(len(rules))])
            for kind, text in KINDS.items()
            if total[kind]
        ],
        kills=[
            (KINDS[kind], len(entries), *_kills(entries, known))
            for kind, entries in by_kind.items()
            if entries
        ],
    )
    return Part(
        (drawn,), (Name("page", "pictures", "pictures.html", "masks, acceptance rules, kill matrix"),)
    )


def _kills(entries: list[Entry], known: Known) -> tuple[int, int]:
    """Count the entries found under the rule that they break, in a whole and in a quick run."""
    kills = [known.kills[entry.name] for entry in entries if entry.name in known.kills]
    return sum(bool(kill.case) for kill in kills), sum(kill.quick for kill in kills)


def _index(known: Known, by_rule: dict[str, list[Entry]]) -> Page:
    chapters = [
        (
            chapter,
            [
                (rule, len(by_rule[rule.id]), *_kills(by_rule[rule.id], known))
                for rule in rules
                if rule.id in by_rule
            ],
        )
        for chapter, rules in known.chapters().items()
    ]
    return make_page(
        "gallery/index",
        "gallery.md",
        entries=known.entries,
        correct=correct_entries(),
        killed=_kills([*known.entries], known)[0],
        chapters=chapters,
    )

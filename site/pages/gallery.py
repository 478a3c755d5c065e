"""The gallery: the wrong implementations of each rule, and what finds them."""

from attnspec.conformance.gallery import correct_entries
from attnspec.conformance.gallery.entry import KINDS, PLACE, Entry
from pages.known import Known
from pages.page import (
    ORPHAN,
    Name,
    Page,
    Part,
    code,
    crumbs,
    escaped,
    inline,
    link,
    plural,
    raw,
    rule_link,
    table,
)


def gallery(known: Known) -> Part:
    """Return a page for each rule, and their list."""
    by_rule: dict[str, list[Entry]] = {}
    for one in known.entries:
        by_rule.setdefault(one.rule, []).append(one)
    pages = [_index(known, by_rule)]
    names = []
    for rule, entries in by_rule.items():
        pages.append(Page(f"gallery/{rule}", _page(rule, entries, known)))
        names += [Name("entry", one.name, f"gallery/{rule}.html#{one.name}", one.sentence) for one in entries]
    names += [
        Name("entry", one.name, f"gallery/index.html#{one.name}", f"correct: {one.sentence}")
        for one in correct_entries()
    ]
    return Part(tuple(pages), tuple(names))


def _page(rule: str, entries: list[Entry], known: Known) -> str:
    rows = [
        (
            f"{{{one.name}}}",
            link(f"#{one.name}", code(one.name)),
            inline(one.sentence, known=known.ids),
            escaped(KINDS[one.kind]),
            _thread(one.seen),
            _found_by(one, known),
        )
        for one in entries
    ]
    title = known.rules[rule].title
    return "\n".join(
        [
            ORPHAN
            + raw(
                crumbs(
                    ("../index.html", "attnspec"), ("index.html", "Gallery"), (f"../rules/{rule}.html", rule)
                )
            ),
            f"# Wrong implementations of {rule}\n",
            f"[{rule} {title}](page:../rules/{rule}.html)\n",
            f"`attnspec check {PLACE}:NAME` judges one of them.\n",
            raw(
                table(
                    ("name", "what it does", "class of bug", "seen in public", "found by"),
                    rows,
                    label=f"Entries for {rule}",
                )
            ),
        ]
    )


def _thread(seen: str) -> str:
    """Link a public thread, given as ``owner/repository#number``."""
    repository, _, number = seen.partition("#")
    return link(f"https://github.com/{repository}/issues/{number}", escaped(seen)) if seen else ""


def _found_by(one: Entry, known: Known) -> str:
    kill = known.kills.get(one.name)
    if kill is None:
        return "not measured"
    if kill.case:
        return code(kill.case) + (" (also with <code>--quick</code>)" if kill.quick else "")
    if kill.other:
        return f"{code(kill.other)} as {rule_link(kill.reported)}"
    return "only at larger sizes"


def _index(known: Known, by_rule: dict[str, list[Entry]]) -> Page:
    killed = sum(bool(known.kills[one.name].case) for one in known.entries if one.name in known.kills)
    correct = correct_entries()
    parts = [
        "# Gallery\n",
        (
            "The gallery measures which bugs the suite finds. It has "
            f"{plural(len(known.entries), 'wrong implementation')}, "
            "each with "
            f"one named bug, and {plural(len(correct), 'correct one')} that compute in "
            "other ways. The ordinary run of the suite finds "
            f"{killed:,} of the wrong ones under the rule that they break; most others "
            "are wrong only at larger sizes. The "
            "[pictures](../pictures.md) show this by class of bug.\n"
        ),
    ]
    for chapter in dict.fromkeys(rule.chapter for rule in known.rules.values()):
        rows = []
        for rule in known.rules.values():
            entries = by_rule.get(rule.id, [])
            if rule.chapter != chapter or not entries:
                continue
            found = sum(bool(known.kills[one.name].case) for one in entries if one.name in known.kills)
            quick = sum(known.kills[one.name].quick for one in entries if one.name in known.kills)
            rows.append(
                (
                    rule_link(rule.id),
                    inline(rule.title),
                    link(f"{rule.id}.html", plural(len(entries), "entry", "entries")),
                    str(found),
                    str(quick),
                )
            )
        parts.append(f"## {chapter.capitalize()}\n")
        head = ("rule", "title", "wrong implementations", "found", "found with --quick")
        parts.append(raw(table(head, rows, label=f"Gallery of the chapter {chapter}")))
    rows = [
        (f"{{{one.name}}}", code(one.name), inline(one.sentence, known=known.ids), one.accuracy)
        for one in correct
    ]
    parts.append("## Correct implementations\n\nThe suite must pass each of them, in every dtype.\n")
    parts.append(
        raw(table(("name", "how it computes", "class of budget"), rows, label="Correct implementations"))
    )
    return Page("gallery/index", "\n".join(parts))

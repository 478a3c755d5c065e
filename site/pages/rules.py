"""The page of each rule."""

import re

from attnspec import Case, Rule
from attnspec.backends.names import LIBRARY_NAMES
from pages.chapters import Address, section
from pages.findings import subject
from pages.known import Known
from pages.libraries import Standing
from pages.page import (
    ORPHAN,
    Name,
    Page,
    Part,
    code,
    crumbs,
    escaped,
    filter_of,
    inline,
    link,
    plural,
    raw,
    table,
)
from pages.vectors import script, shown
from pages.who import who

_VARIANT = re.compile(r"^- `(?P<name>[a-z0-9-]+)`:", re.MULTILINE)
#: The number of wrong implementations that the page of a rule lists.
_FEW = 12


def rules(known: Known, address: Address, standing: tuple[Standing, ...] = (), *, results: bool) -> Part:
    """Return the pages of all rules, their list, and the code of their vectors."""
    every = list(known.rules.values())
    pages = [_index(known)]
    names = []
    for place, rule in enumerate(every):
        near = (every[place - 1] if place else None, every[place + 1] if place + 1 < len(every) else None)
        pages.append(Page(f"rules/{rule.id}", _page(rule, near, known, address, standing, results=results)))
        names.append(Name("rule", rule.id, f"rules/{rule.id}.html", rule.title, text=rule.sentence))
        names += [
            Name(
                "variant",
                f"{rule.id}:{one.name}",
                f"rules/{rule.id}.html#{one.name}",
                f"variant of {rule.title}",
            )
            for one in rule.variants
        ]
    scripts = {f"_static/vectors/{case.id}.js": script(case) for case in known.cases}
    return Part(tuple(pages), tuple(names), dict(scripts))


def _page(
    rule: Rule,
    near: tuple[Rule | None, Rule | None],
    known: Known,
    address: Address,
    standing: tuple[Standing, ...],
    *,
    results: bool,
) -> str:
    sentence, rest = section(known, rule.id, rule.chapter, address)
    sections = [
        who(rule, standing, known.ids, results=results),
        _findings(rule, known),
        _vectors(rule, known),
        _tests(rule, known),
        _wrong(rule, known),
    ]
    parts = [
        ORPHAN + raw(_head(rule, near)),
        f"# {rule.id} {rule.title}\n",
        raw(_tags(rule, known, results=results)),
        "{.sentence}\n" + sentence + "\n",
        _here(sections),
        _VARIANT.sub(r"- [`\g<name>`]{#\g<name>}:", rest),
        *sections,
    ]
    return "\n".join(part for part in parts if part)


def _here(sections: list[str]) -> str:
    """List the sections of a page under its sentence."""
    heads = [text.partition("\n")[0].removeprefix("## ") for text in sections if text]
    links = " ".join(link(f"#{head.lower().replace(' ', '-')}", escaped(head)) for head in heads)
    return raw(f'<nav class="here" aria-label="On this page">{links}</nav>') if heads else ""


def _head(rule: Rule, near: tuple[Rule | None, Rule | None]) -> str:
    where = crumbs(
        ("../index.html", "attnspec"), ("index.html", "Rules"), (f"../spec/{rule.chapter}.html", rule.chapter)
    )
    before, after = near
    steps = [
        link(f"{before.id}.html", f"← {before.id}") if before else "",
        link(f"{after.id}.html", f"{after.id} →") if after else "",
    ]
    return (
        f'<div class="top">{where}<nav class="steps" aria-label="Other rules">{" ".join(steps)}</nav></div>'
    )


def _tags(rule: Rule, known: Known, *, results: bool) -> str:
    levels = ", ".join(link(f"../spec/levels.html#{name}", name) for name in known.levels_of(rule.id))
    return (
        f'<p class="tags"><span class="level {rule.level.lower()}">{rule.level}</span>'
        f"<span>{'levels ' + levels if levels else 'in no level'}</span>"
        + (
            f"<span>{link(f'../results/index.html#q={rule.id}', 'results of all libraries')}</span>"
            if results
            else ""
        )
        + f"<span>cite as <code>{rule.id}</code>, {link('../citing.html', 'or by intersphinx')}</span></p>"
    )


def _vectors(rule: Rule, known: Known) -> str:
    own = [case for case in known.cases if case.rules[0] == rule.id]
    others = [case for case in known.cases if rule.id in case.rules[1:]]
    if not own and not others:
        return ""
    parts = ["## Golden vectors\n"]
    if own:
        parts.append(
            "Each number is the float64 nearest to the exact value, "
            "with a [proof](../spec/index.md#the-golden-vectors). "
            ""
            "A dot stands for False and T for True.\n"
        )
    parts += [shown(case, known.ids) for case in own]
    if others:
        said = plural(len(others), "vector")
        of = "of other rules also " + ("tests" if len(others) == 1 else "test")
        rows = "".join(f"<li>{_linked(case)}</li>" for case in others)
        parts.append(raw(f"<details><summary>{said} {of} {rule.id}</summary><ul>{rows}</ul></details>"))
    return "\n".join(parts)


def _linked(case: Case) -> str:
    return f"{link(f'{case.rules[0]}.html#{case.id}', code(case.id))} {escaped(case.title)} ({case.rules[0]})"


def _tests(rule: Rule, known: Known) -> str:
    rows: dict[str, list[object]] = {}
    for count in known.counts:
        if number := count.rules.get(rule.id, 0):
            row = rows.setdefault(f"{count.group.chapter} {count.group.title}", [count, 0, 0])
            row[1] = int(str(row[1])) + number
            row[2] = int(str(row[2])) + 1
    if not rows:
        return ""
    cells = []
    for first, number, groups in rows.values():
        group = first.group  # type: ignore[attr-defined] # the first column is a Count
        address = f"../cases/{group.chapter}.html#{group.id}"
        more = f" and {int(str(groups)) - 1} like it" if groups != 1 else ""
        cells.append(
            (
                inline(group.title, known=known.ids),
                link(address, code(group.id.rstrip("-"))) + more,
                str(number),
            )
        )
    total = sum(int(row[2]) for row in cells)
    return "\n".join(
        [
            "## Tests\n",
            (
                f"The suite tests {rule.id} by the vectors and by {plural(total, 'generated case')}. "
                f"`attnspec check my_module:attention -k {rule.id}` runs all of them.\n"
            ),
            raw(table(("what holds", "group of cases", "cases"), cells, label="Generated cases")),
        ]
    )


def _wrong(rule: Rule, known: Known) -> str:
    own = [one for one in known.entries if one.rule == rule.id]
    if not own:
        return ""
    rows = [
        (link(f"../gallery/{rule.id}.html#{one.name}", code(one.name)), inline(one.sentence, known=known.ids))
        for one in own[:_FEW]
    ]
    parts = [
        "## Wrong implementations\n",
        (
            f"The gallery has {plural(len(own), 'implementation')} that "
            f"{'breaks' if len(own) == 1 else 'break'} "
            f"{rule.id}.\n"
        ),
        raw(table(("name", "what it does"), rows, label="Wrong implementations")),
    ]
    if len(own) > _FEW:
        parts.append(f"[All {len(own)}, with the case that finds each](page:../gallery/{rule.id}.html)\n")
    return "\n".join(parts)


def _findings(rule: Rule, known: Known) -> str:
    own = [one for one in known.findings if rule.id in one.rules]
    if not own:
        return ""
    rows = []
    for one in own:
        seen = known.seen.get(one.name)
        address = f"../findings/{one.library}.html#{one.name.partition('/')[2]}"
        version = f"{LIBRARY_NAMES.get(one.library, one.library)} {seen.version if seen else ''}"
        rows.append((link(address, inline(subject(one))), version, one.status))
    return "\n".join(
        [
            "## Findings\n",
            "Released libraries that break the rule.\n",
            raw(table(("finding", "seen with", "thread"), rows, label="Findings")),
        ]
    )


def _index(known: Known) -> Page:
    parts = ["# Rules\n"]
    musts = {
        level: sum(one.level == level for one in known.rules.values()) for level in ("MUST", "SHOULD", "MAY")
    }
    said = ", ".join(f"{number} {level}" for level, number in musts.items())
    parts.append(
        f"{len(known.rules)} rules: {said}. [How to read a rule](../spec/index.md#how-to-read-a-rule).\n"
    )
    parts.append(raw(filter_of("rules", "rules", "window, lse, MUST, masking")))
    for chapter in dict.fromkeys(rule.chapter for rule in known.rules.values()):
        rows = []
        for rule in known.rules.values():
            if rule.chapter == chapter:
                variants = ", ".join(
                    link(f"{rule.id}.html#{one.name}", code(one.name)) for one in rule.variants
                )
                rows.append((link(f"{rule.id}.html", rule.id), inline(rule.title), rule.level, variants))
        parts.append(f"## {chapter.capitalize()}\n")
        parts.append(
            raw(
                table(
                    ("rule", "title", "word", "variants"),
                    rows,
                    label=f"Rules of the chapter {chapter}",
                    kind="rules",
                )
            )
        )
    return Page("rules/index", "\n".join(parts))

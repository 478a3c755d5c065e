"""The findings: what released libraries do that a rule does not allow."""

import re

from attnspec.backends.names import LIBRARY_NAMES
from pages.known import Known
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
    rule_link,
    table,
)
from tools.findings import FIELDS, Finding, report

_RULES = re.compile(r" ?\((?:[A-Z]+-\d+[^)]*)\)")


def findings(known: Known) -> Part:
    """Return a page for each library that has findings, and the table of all."""
    pages = [_index(known)]
    for library in dict.fromkeys(one.library for one in known.findings):
        own = [one for one in known.findings if one.library == library]
        pages.append(Page(f"findings/{library}", _page(library, own, known)))
    names = [Name("finding", one.name, _address(one), one.title) for one in known.findings]
    texts = {f"files/reports/{one.name}.txt": report(one, known.seen.get(one.name)) for one in known.findings}
    return Part(tuple(pages), tuple(names), dict(texts))


def row(one: Finding, known: Known, root: str = "../") -> tuple[str, ...]:
    """Return a row of a table of findings: finding, version, rules, state."""
    seen = known.seen.get(one.name)
    state = one.status if seen is None or seen.shows else "no longer shown"
    return (
        link(root + _address(one), inline(subject(one), root)),
        f"{LIBRARY_NAMES.get(one.library, one.library)} {seen.version if seen else ''}",
        ", ".join(rule_link(rule, root) for rule in one.rules),
        state,
    )


def subject(one: Finding) -> str:
    """Return the title of a finding without the rules, which stand beside it."""
    return _RULES.sub("", one.title)


def _address(one: Finding) -> str:
    library, _, name = one.name.partition("/")
    return f"findings/{library}.html#{name}"


def _page(library: str, own: list[Finding], known: Known) -> str:
    name = LIBRARY_NAMES.get(library, library)
    parts = [
        ORPHAN
        + raw(
            crumbs(
                ("../index.html", "attnspec"),
                ("index.html", "Findings"),
                (f"../libraries/{library}.html", name),
            )
        ),
        f"# Findings: {name}\n",
        (
            f"{plural(len(own), 'behaviour')} of {name} that a rule does not allow, or "
            "that its documentation does not "
            "say. Each script needs the library alone.\n"
        ),
    ]
    parts += [_section(one, known) for one in own]
    return "\n".join(parts)


def _section(one: Finding, known: Known) -> str:
    title = subject(one).partition(": ")[2] or subject(one)
    seen = known.seen.get(one.name)
    name = LIBRARY_NAMES.get(one.library, one.library)
    rows = [("rules", ", ".join(map(rule_link, one.rules)))]
    if seen:
        rows += [
            ("expected", code(seen.expected)),
            ("got", code(seen.got)),
            ("seen with", f"{escaped(name)} {seen.version}"),
        ]
        if not seen.shows:
            rows.append(("state", "this release shows it no longer"))
    rows += [(key.lower(), _with_links(one.fields[key], known)) for key in FIELDS if key in one.fields]
    facts = "".join(f"<dt>{key}</dt><dd>{said}</dd>" for key, said in rows)
    parts = [
        raw(f'<span id="{one.name.partition("/")[2]}"></span>'),
        f"## {title[:1].upper()}{title[1:]}\n",
        *(f"{text}\n" for text in one.text),
        raw(f'<dl class="facts">{facts}</dl>'),
        f"```python\n{one.code}\n```\n",
        f"[Text for a report](page:../files/reports/{one.name}.txt)\n",
    ]
    return "\n".join(parts)


def _with_links(text: str, known: Known) -> str:
    words = []
    for word in text.split(" "):
        bare = word.rstrip(".,;:)")
        if bare.startswith("https://"):
            words.append(link(bare, escaped(bare.removeprefix("https://github.com/"))) + word[len(bare) :])
        else:
            words.append(word)
    if any(word.startswith("<a ") for word in words):
        return " ".join(word if word.startswith("<a ") else escaped(word) for word in words)
    return inline(text, known=known.ids)


def _index(known: Known) -> Page:
    libraries = len({one.library for one in known.findings})
    new = sum(one.status == "new" for one in known.findings)
    text = (
        f"# Findings\n\n{plural(len(known.findings), 'behaviour')} of released versions "
        f"of {libraries} libraries that a rule does "
        "not allow, or that their documentation does not say. Each has a script "
        "that uses the library alone, and "
        f"the text of a report. *New* means that no thread about it was found ({new} of them).\n\n"
    )
    chosen = sorted({LIBRARY_NAMES.get(one.library, one.library) for one in known.findings}, key=str.lower)
    text += raw(filter_of("findings", "findings", "window, float16, MASK-6", chosen))
    head = ("finding", "seen with", "rules", "thread")
    rows = [row(one, known) for one in known.findings]
    return Page(
        "findings/index",
        text + raw(table(head, rows, label="All findings", kind="findings stack")),
    )

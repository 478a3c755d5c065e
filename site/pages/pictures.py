"""The page of pictures: masks, what acceptance rules let through, and the kill matrix."""

from collections import Counter
from collections.abc import Mapping

from attnspec.conformance.gallery.entry import KINDS
from pages.known import Known, acceptance
from pages.page import Name, Page, Part, escaped, link, raw, table
from tools.pictures import MASKS

#: Sizes of the chart, in units of its own.
_BAR, _ROW, _LABEL, _WIDTH = 16, 26, 210, 620


def pictures(known: Known) -> Part:
    """Return the page of pictures."""
    figures = acceptance(known.root)
    parts = [
        "# Pictures\n",
        "## Masks\n",
        (
            "A filled square is a key that the query of its row may attend to. [Masking](spec/masking.md) "
            "has the rules.\n"
        ),
    ]
    for name, masks in MASKS.items():
        parts += [f"### {masks.title}\n", f"![{masks.about}](spec/pictures/{name}.svg)\n"]
    parts += [
        "### The steps of the operator\n",
        "![The steps of the operator in their order](spec/pictures/operator.svg)\n",
    ]
    parts += [
        "## What acceptance rules let through\n",
        (
            f"Wrong implementations of the gallery that each rule accepts, of {len(figures['wrong'])}. "
            "[How this was measured](guide/acceptance.md).\n"
        ),
        raw(_bars(figures)),
        "## Acceptance rules and classes of bugs\n",
        (
            "The share of the wrong implementations of a class that a rule accepts, "
            "in percent. A darker cell lets more through.\n"
        ),
        raw(_classes(known, figures)),
        "## Kill matrix\n",
        "How many wrong implementations of each class the suite finds under the rule that they break.\n",
        raw(_kills(known)),
    ]
    name = Name("page", "pictures", "pictures.html", "masks, acceptance rules, kill matrix")
    return Part((Page("pictures", "\n".join(parts)),), (name,))


def _bars(figures: Mapping[str, Mapping[str, str]]) -> str:
    """Draw the number of accepted entries of each rule as a bar."""
    rules, wrong = figures["rules"], figures["wrong"]
    whole = len(wrong)
    height = _ROW * len(rules) + 8
    parts = [
        (
            f'<figure class="chart"><svg viewBox="0 0 {_LABEL + _WIDTH} {height}" role="img" '
            'aria-label="Bars: the wrong implementations that each acceptance rule accepts; '
            'the numbers stand beside the bars">'
        )
    ]
    for place, rule in enumerate(rules):
        accepted = sum(letters[place] != "-" for letters in wrong.values())
        top = place * _ROW + 4
        length = (_WIDTH - 60) * accepted / whole
        own = " own" if rule == "attnspec" else ""
        parts.append(
            f'<text x="{_LABEL - 8}" y="{top + 13}" text-anchor="end">{escaped(rule)}</text>'
            f'<rect class="bar{own}" x="{_LABEL}" y="{top}" width="{length:.1f}" height="{_BAR}" rx="2"/>'
            f'<text x="{_LABEL + length + 6:.1f}" y="{top + 13}">{accepted}</text>'
        )
    return "".join([*parts, "</svg></figure>"])


def _classes(known: Known, figures: Mapping[str, Mapping[str, str]]) -> str:
    kinds = {one.name: one.kind for one in known.entries}
    rules, wrong = figures["rules"], figures["wrong"]
    total: Counter[str] = Counter()
    accepted: Counter[tuple[str, int]] = Counter()
    for name, letters in wrong.items():
        kind = kinds.get(name, "")
        total[kind] += 1
        accepted.update((kind, place) for place, letter in enumerate(letters) if letter != "-")
    rows = []
    for kind, text in KINDS.items():
        if total[kind]:
            shares = [100 * accepted[kind, place] / total[kind] for place in range(len(rules))]
            rows.append((escaped(text), str(total[kind]), *(_shade(share) for share in shares)))
    heads = (f'<span class="turned">{escaped(rule)}</span>' for rule in rules)
    return table(("class of bug", "entries", *heads), rows, label="Share accepted, by class", kind="matrix")


def _shade(share: float) -> str:
    step = min(9, int(share / 10))
    return f'<span class="shade s{step}">{share:.0f}</span>'


def _kills(known: Known) -> str:
    rows = []
    for kind, text in KINDS.items():
        own = [one for one in known.entries if one.kind == kind]
        if not own:
            continue
        kills = [known.kills[one.name] for one in own if one.name in known.kills]
        found = sum(bool(kill.case) for kill in kills)
        quick = sum(kill.quick for kill in kills)
        width = 100 * found / len(own)
        inner = f'<span style="width:{width:.1f}%"></span>'
        bar = f'<span class="meter" role="img" aria-label="{width:.0f} percent">{inner}</span>'
        rows.append((escaped(text), str(len(own)), str(found), str(quick), bar))
    note = (
        f"<p>{link('gallery/index.html', 'The gallery')} has the same by rule, with "
        "the case that finds each entry.</p>"
    )
    head = ("class of bug", "wrong implementations", "found", "found with --quick", "share found")
    return table(head, rows, label="Kill matrix") + note

"""The page of all rules, for folders of pages without a site beside them."""

import re
from html import escape
from itertools import groupby

from attnspec import Rule, rules
from attnspec.conformance.render.html.page import frame
from attnspec.conformance.render.text import web_address

#: The page, in the folder.
PAGE = "rules.html"


def rule_address(rule: str) -> str:
    """Return the address of a rule in the folder.

    Examples
    --------
    >>> from attnspec.conformance.render.html.rule_list import rule_address
    >>> rule_address("MASK-6")
    'rules.html#MASK-6'
    """
    return f"{PAGE}#{rule}"


def rules_page() -> str:
    """Return the page: each rule with its sentence and its variants."""
    chapters = "".join(
        f'<h2 id="{name}">{escape(name.capitalize())}</h2>{"".join(map(_rule, found))}'
        for name, found in groupby(rules(), key=lambda rule: rule.chapter)
    )
    return frame(
        "Rules",
        f"""<h1>Rules</h1>
<p class="lead">The sentence of each rule of the standard, and the variants that have a name: known ways of
breaking it. The chapters of the standard have the reasons and the formulas.</p>
{chapters}
""",
    )


def sentences() -> dict[str, str]:
    """Return the sentence of each rule, for the panel of a cell.

    Examples
    --------
    >>> from attnspec.conformance.render.html.rule_list import sentences
    >>> "MUST be 0" in sentences()["MASK-6"]
    True
    """
    return {rule.id: rule.sentence for rule in rules()}


def _rule(rule: Rule) -> str:
    variants = "".join(
        f"<dt><code>{one.name}</code></dt><dd>{_prose(one.text)}</dd>" for one in rule.variants
    )
    listed = f"<p>Variants:</p><dl>{variants}</dl>" if variants else ""
    where = web_address(rule)
    more = f'<p><a href="{escape(where)}">In the standard</a></p>' if where else ""
    return (
        f'<section class="rule" id="{rule.id}"><h3>{rule.id} {_prose(rule.title)} '
        f"<small>{rule.level}</small></h3><p>{_prose(rule.sentence)}</p>{listed}{more}</section>"
    )


def _prose(text: str) -> str:
    """Return a text of the standard as HTML: code, and links by their text."""
    without = re.sub(r"\[((?:[^\]`]|`[^`]*`)*)\]\[[^\]]*\]", r"\1", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(without, quote=False))

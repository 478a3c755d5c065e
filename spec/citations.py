"""Links the ids of rules in running text to the rules.

``python -m attnspec.citations spec/*.md`` writes the links: it puts every id in brackets, and lists the
targets at the end of the page under the line ``<!-- rules -->``.
"""

import re
import sys
from pathlib import Path

from attnspec.rule import DEFINITIONS, Rule, rules

_ID = r"[A-Z]+-[1-9][0-9]*"
_DEFINITION = re.compile(rf"^\[{_ID}\]: .*\n", re.MULTILINE)
#: Places where an id is not a citation: code, generated parts, headings, quotations and links.
_KEPT = (
    r"^```.*?^```$|^<!-- begin.*?^<!-- end.*?-->$|^<!-- [a-z_, ]+ -->$.*?^<!-- end -->$|^#.*?$|^>.*?$"
    r"|`[^`\n]*`|\[[^][]*\]\([^()\s]*\)|\[[^][`]*\](?:\[[a-z-]+\])?"
)
_CITED = re.compile(rf"(?P<kept>{_KEPT})|\b(?P<id>{_ID})\b", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINKED = re.compile(rf"\[({_ID})\](?!\()")


def anchor(rule: Rule) -> str:
    """Return the anchor of the heading of a rule in the page of its chapter."""
    heading = f"{rule.id} {rule.title}".lower()
    return "".join(letter for letter in heading if letter.isalnum() or letter in " -_").replace(" ", "-")


def cited(page: str) -> str:
    r"""Link every rule that the running text of a page cites, and list the targets of the links."""
    text = _DEFINITION.sub("", page.replace(f"{DEFINITIONS}\n", "")).rstrip("\n")
    known = {rule.id: rule for rule in rules()}

    def link(match: re.Match[str]) -> str:
        return f"[{match['id']}]" if match["id"] in known else match[0]

    text = _CITED.sub(link, text)
    results = {*_LINKED.findall(_CODE.sub("", text))}
    lines = [f"[{id_}]: {rule.chapter}.md#{anchor(rule)}" for id_, rule in known.items() if id_ in results]
    return "\n".join([text, *(["", DEFINITIONS, *lines] if lines else []), ""])


def main(paths: list[str]) -> None:
    """Rewrite the links of some pages."""
    for path in map(Path, paths):
        path.write_text(cited(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

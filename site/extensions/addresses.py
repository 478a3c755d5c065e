"""The domain of the names of the standard: everything with an address is in ``objects.inv``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.domains import Domain, ObjType
from sphinx.roles import XRefRole

KINDS = ("rule", "variant", "case", "operation", "argument", "entry", "finding", "library")


class Names(Domain):
    """Names with addresses, as the pages of the site declare them."""

    name = "attnspec"
    label = "attnspec"
    object_types: ClassVar = {kind: ObjType(kind, kind, searchprio=-1) for kind in KINDS}
    roles: ClassVar = {kind: XRefRole() for kind in KINDS}

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Yield every name. The search of the site has them from a file of its own."""
        for entry in _names(self.env):
            if entry["kind"] in KINDS:
                page, _, place = entry["address"].partition("#")
                # An empty anchor stands for the whole page.
                yield entry["name"], entry["name"], entry["kind"], page.removesuffix(".html"), place, -1

    def resolve_xref(
        self, env: Any, fromdocname: str, builder: Any, typ: str, target: str, node: Any, contnode: Any
    ) -> Any:
        """Link a name."""
        del node  # Sphinx passes it
        for entry in _names(env):
            if (entry["kind"], entry["name"]) == (typ, target):
                page, sign, place = entry["address"].partition("#")
                address = builder.get_relative_uri(fromdocname, page.removesuffix(".html")) + sign + place
                return nodes.reference("", "", contnode, internal=True, refuri=address)
        return None

    def merge_domaindata(self, docnames: Any, otherdata: Any) -> None:
        """Keep nothing: the names come from a file."""

    def resolve_any_xref(self, *_: Any) -> list[Any]:
        """Find nothing for a role without a kind."""
        return []


def _names(env: Any) -> list[dict[str, str]]:
    path = Path(env.srcdir) / "names.json"
    names: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return names


def _labels(app: Any, env: Any) -> None:
    """Give each rule a label, so that `ref` cites it with its title."""
    del app  # Sphinx passes it
    standard = env.domains.standard_domain
    for entry in _names(env):
        if entry["kind"] == "rule":
            page = entry["address"].removesuffix(".html")
            label = f"rule:{entry['name']}".lower()
            standard.labels[label] = (page, "", f"{entry['name']} {entry['title']}")
            standard.anonlabels[label] = (page, "")


def setup(app: Any) -> dict[str, Any]:
    """Register the domain with Sphinx."""
    app.add_domain(Names)
    app.connect("env-updated", _labels)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

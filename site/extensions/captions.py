"""The captions of the table of contents are headings. Screen readers need their level."""

from typing import Any

_HEADING = 'role="heading"'


def setup(app: Any) -> dict[str, Any]:
    """Register the change with Sphinx, after the theme has made the table of contents."""

    def with_level(_app: Any, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
        tree = context.get("furo_navigation_tree", "")
        context["furo_navigation_tree"] = tree.replace(_HEADING, f'{_HEADING} aria-level="2"')

    app.connect("html-page-context", with_level, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

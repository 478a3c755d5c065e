"""The configuration of Sphinx. `build.py` writes the pages and then calls Sphinx with it."""

import re
import sys
from pathlib import Path
from typing import Any

from attnspec import __version__
from attnspec.conformance.render.html.page import ASSETS

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "extensions"))

project = "attnspec"
author = "The attnspec authors"
release = __version__
language = "en"
extensions = ["myst_parser", "mathml", "addresses"]
exclude_patterns = ["files"]

myst_enable_extensions = ["dollarmath", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
myst_dmath_double_inline = False
# Addresses that Sphinx need not know: pages and anchors of HTML. `check.py` checks them.
myst_url_schemes = {
    "http": None,
    "https": None,
    "mailto": None,
    "page": "{{path}}",
    "place": "{{path}}#{{fragment}}",
}
# A word of HTML in code fences of the standard, such as pycon, is a lexer that Pygments has.
# The glossary has terms as headings of the third level.
suppress_warnings = ["myst.header"]
highlight_language = "none"

html_theme = "furo"
html_title = "attnspec"
html_static_path = [str(ASSETS), str(HERE / "assets")]
html_css_files = ["attnspec.css"]
html_js_files = [("search.js", {"defer": "defer"}), ("site.js", {"defer": "defer"})]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": False}
html_permalinks_icon = "¶"
smartquotes = False


def setup(app: Any) -> None:
    """Give the captions of the table of contents their level as headings, which screen readers need."""

    def with_level(_app: Any, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
        heading = 'role="heading"'
        tree = context.get("furo_navigation_tree", "")
        if page.startswith(("rules/", "gallery/")):
            # The list of chapters is 3 KB of each of these pages, and the first of its links has it too.
            tree = re.sub(r"(?s)(The standard</span></p>\s*<ul.*?</li>).*?(?=</ul>)", r"\1", tree)
        context["furo_navigation_tree"] = tree.replace(heading, f'{heading} aria-level="2"')

    def without_index(app: Any) -> None:
        app.builder.search = False  # the search of this site has a page of its own

    app.connect("builder-inited", without_index)
    app.connect("html-page-context", with_level, priority=900)  # after the theme has made the contents

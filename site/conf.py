"""The configuration of Sphinx. `build.py` writes the pages and then calls Sphinx with it."""

import sys
from pathlib import Path

from attnspec import __version__

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "extensions"))

project = "attnspec"
author = "The attnspec authors"
release = __version__
language = "en"
extensions = ["myst_parser", "mathml", "addresses", "captions"]
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
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = [("search.js", {"defer": "defer"}), ("site.js", {"defer": "defer"})]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": False}
# A summary would be fetched, which pages from file:// must not do.
html_show_search_summary = False
html_permalinks_icon = "¶"
smartquotes = False

"""Writes a run as a badge: an SVG, or the JSON for badge services."""

import json
from xml.sax.saxutils import escape

from attnspec import levels
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.render.summary import common_levels

_LABEL = "attnspec"
#: The number of levels for which a badge has room.
_MOST = 5
_NOT_GOOD = {
    Outcome.FAILS: "does not conform",
    Outcome.NOT_LOADED: "not judged",
    Outcome.NOT_WHOLE: "not judged whole",
}
_COLORS = {"good": ("brightgreen", "#4c1"), "part": ("yellow", "#dfb317"), "bad": ("red", "#e05d44")}


def to_json(report: Report) -> str:
    """Return as JSON the levels that all backends of a run reach, or that the run does not conform."""
    message, mood = _message(report)
    badge = {"schemaVersion": 1, "label": _LABEL, "message": message, "color": _COLORS[mood][0]}
    return json.dumps(badge) + "\n"


def to_svg(report: Report) -> str:
    """Return the same as an image."""
    message, mood = _message(report)
    return badge_svg(_LABEL, message, mood)


def badge_svg(label: str, message: str, mood: str) -> str:
    """Return an image with a label, and a message on the colour of ``good``, ``part`` or ``bad``."""
    widths = [12 + 7 * len(text) for text in (label, message)]
    whole, middle = sum(widths), widths[0] + widths[1] / 2
    name, text = escape(label), escape(message)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img">'
        f"<title>{name}: {text}</title>"
        f'<rect width="{widths[0]}" height="20" fill="#555"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="20" fill="{_COLORS[mood][1]}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="{widths[0] / 2}" y="14">{name}</text><text x="{middle}" y="14">{text}</text></g></svg>\n'
    )


def _message(report: Report) -> tuple[str, str]:
    if not report.good:
        return _NOT_GOOD[report.outcome], "bad"
    subjects = report.results.subjects
    known = len(report.failures.known)
    more = f", {known} known failure{'s' * (known > 1)}" if known else ""
    if not all(map(report.standings, subjects)):
        return f"part of the suite passes{more}", "part"
    reached = common_levels(report)
    more += ", others fail" if report.failures.new else ""  # outside of the level that is required
    mood = "good" if reached and not more else "part"
    more += f"; {len(report.accepted)} not refused" if report.accepted else ""
    return _level_names(reached) + more, mood


def _level_names(reached: list[str]) -> str:
    """Return the names of levels, shortened for a badge."""
    if len(reached) == len(levels()):
        return "every level"
    shown = reached if len(reached) <= _MOST else [*reached[: _MOST - 1], f"{len(reached) - _MOST + 1} more"]
    return ", ".join(shown) or "no level"

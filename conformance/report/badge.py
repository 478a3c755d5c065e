"""A run as a badge: an SVG, or the JSON that badge services take."""

import json
from xml.sax.saxutils import escape

from attnspec.conformance.report.report import Report

_LABEL = "attnspec"
_COLORS = {"good": ("brightgreen", "#4c1"), "part": ("yellow", "#dfb317"), "bad": ("red", "#e05d44")}


def to_json(report: Report) -> str:
    r"""Write the levels that all backends of a run reach, or that it does not conform, as JSON.

    Examples
    --------
    >>> from attnspec.conformance.report.report import Report
    >>> from attnspec.conformance.report.badge import to_json
    >>> from attnspec.conformance.results import Results
    >>> to_json(Report(Results((), ())))
    '{"schemaVersion": 1, "label": "attnspec", "message": "does not conform", "color": "red"}\n'
    """
    message, mood = _said(report)
    badge = {"schemaVersion": 1, "label": _LABEL, "message": message, "color": _COLORS[mood][0]}
    return json.dumps(badge) + "\n"


def to_svg(report: Report) -> str:
    """Write the same as an image."""
    message, mood = _said(report)
    widths = [12 + 7 * len(text) for text in (_LABEL, message)]
    whole, middle = sum(widths), widths[0] + widths[1] / 2
    text = escape(message)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img">'
        f"<title>{_LABEL}: {text}</title>"
        f'<rect width="{widths[0]}" height="20" fill="#555"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="20" fill="{_COLORS[mood][1]}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="{widths[0] / 2}" y="14">{_LABEL}</text><text x="{middle}" y="14">{text}</text></g></svg>\n'
    )


def _said(report: Report) -> tuple[str, str]:
    if not report.good:
        return "does not conform", "bad"
    found = [report.standings(subject) for subject in report.results.subjects]
    known = report.failures.known
    more = f", {len(known)} known failures" if known else ""
    if not all(found):
        return f"part of the suite passes{more}", "part"
    reached = [
        one.level
        for one in found[0]
        if all(other.reached for standings in found for other in standings if other.level == one.level)
    ]
    return (", ".join(reached) or "no level") + more, "good" if reached and not known else "part"

"""A run as a badge: an SVG, or the JSON that badge services take."""

import json
from xml.sax.saxutils import escape

from attnspec.conformance.report.report import Report

_COLORS = {"good": ("brightgreen", "#4c1"), "part": ("yellow", "#dfb317"), "bad": ("red", "#e05d44")}


def to_badge(report: Report, suffix: str) -> str:
    r"""Write the levels that all backends of a run reach, or that it does not conform.

    Parameters
    ----------
    report : Report
    suffix : str
        That of the file: ``.svg``, or anything else for JSON.

    Examples
    --------
    >>> from attnspec.conformance.report.report import Report
    >>> from attnspec.conformance.report.badge import to_badge
    >>> from attnspec.conformance.verdict import Results
    >>> to_badge(Report(Results((), ())), ".json")
    '{"schemaVersion": 1, "label": "attnspec", "message": "does not conform", "color": "red"}\n'
    """
    message, mood = _said(report)
    name, color = _COLORS[mood]
    if suffix == ".svg":
        return _svg("attnspec", message, color)
    badge = {"schemaVersion": 1, "label": "attnspec", "message": message, "color": name}
    return json.dumps(badge) + "\n"


def _said(report: Report) -> tuple[str, str]:
    if not report.good:
        return "does not conform", "bad"
    found = [report.standings(subject) for subject in report.results.subjects]
    if not all(found):
        return "part of the suite passes", "part"
    reached = [
        one.level
        for one in found[0]
        if all(other.reached for standings in found for other in standings if other.level == one.level)
    ]
    if report.failures.known:
        return f"{', '.join(reached) or 'no level'}, {len(report.failures.known)} known failures", "part"
    return ", ".join(reached) or "no level", "good" if reached else "part"


def _svg(label: str, message: str, color: str) -> str:
    widths = [12 + 7 * len(text) for text in (label, message)]
    whole, middle = sum(widths), widths[0] + widths[1] / 2
    text = escape(message)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img">'
        f"<title>{label}: {text}</title>"
        f'<rect width="{widths[0]}" height="20" fill="#555"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="20" fill="{color}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="{widths[0] / 2}" y="14">{label}</text><text x="{middle}" y="14">{text}</text></g></svg>\n'
    )

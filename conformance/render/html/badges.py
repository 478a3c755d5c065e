"""A badge for each backend and level, under an address that does not change."""

from attnspec.conformance.render.badge import badge_svg
from attnspec.conformance.render.html.column import Column

_SAID = {
    "p": ("reached", "good"),
    "f": ("not reached", "bad"),
    "d": ("not reached: deviates", "part"),
    "s": ("not reached", "part"),
    "m": ("not reached", "part"),
    "u": ("not offered", "part"),
    "n": ("not judged", "part"),
}


def badge_path(column: Column, level: str) -> str:
    """Return the address of a badge. It is that of the newest run of the backend.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from attnspec.conformance.render.html.badges import badge_path
    >>> badge_path(SimpleNamespace(stem="jax-nn"), "core")
    'badges/jax-nn-core.svg'
    """
    return f"badges/{column.stem}-{level}.svg"


def badge(column: Column, level: str) -> str:
    """Return the image: the backend, the level, and whether it is reached."""
    message, mood = _SAID[column.letter_of_level(level)]
    return badge_svg(f"{column.backend} {level}", message, mood)

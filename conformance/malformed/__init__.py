"""Calls that must be refused: each a call that fits, made wrong in one place."""

from attnspec.conformance.malformed.calls import Malformed, every, malformed, mixed
from attnspec.conformance.malformed.fitting import fitting

__all__ = ["Malformed", "every", "fitting", "malformed", "mixed"]

"""Calls that must be refused: each a call that fits, made wrong in one place."""

from attnspec.conformance.suite.malformed.calls import Malformed, every, malformed, mixed
from attnspec.conformance.suite.malformed.fitting import fitting

__all__ = ["Malformed", "every", "fitting", "malformed", "mixed"]

"""Calls that must be refused: each is a valid call with one fault."""

from attnspec.conformance.suite.malformed.calls import Malformed, every, malformed, mixed
from attnspec.conformance.suite.malformed.fitting import fitting

__all__ = ["Malformed", "every", "fitting", "malformed", "mixed"]

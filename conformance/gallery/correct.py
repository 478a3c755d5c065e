"""Correct, and otherwise made: other formulas, other orders, other precisions."""

from attnspec.conformance.gallery.entry import Entry

plain = Entry("plain", "The implementation that all others differ from.", {})

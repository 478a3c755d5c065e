"""A module whose import raises."""

raise RuntimeError("no device")

"""The cases of the whole suite, which take seconds to make: made once for all tests of a process."""

from attnspec.conformance.suite import items

ALL = tuple(items())

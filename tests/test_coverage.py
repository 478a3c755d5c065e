"""Every option meets every size class, because kernels implement each of them more than once."""

from attnspec.conformance.meta.coverage import missing
from attnspec.conformance.suite import items

ALL = tuple(items())


def test_nothing_is_missing():
    assert missing(ALL) == []

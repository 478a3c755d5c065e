"""Every option meets every size class, because kernels implement each of them more than once."""

import numpy as np
import pytest

from attnspec.conformance.meta.coverage import FORMS, PAIR_CLASSES, SIZE_CLASSES, SOURCES, impossible, missing
from attnspec.conformance.suite import items

ALL = tuple(item for item in items() if item.chapter in ("errors", "masking", "scores", "softmax"))


def test_nothing_is_missing():
    assert missing(ALL) == []

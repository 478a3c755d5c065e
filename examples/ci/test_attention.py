"""A kernel in the tests of its project: all cases of a level in float32, as one test."""

from my_kernels import attention

from attnspec.conformance import check


def test_attention_conforms():
    verdict = check(attention, level="core", dtypes=["float32"])
    assert verdict.good, verdict.text

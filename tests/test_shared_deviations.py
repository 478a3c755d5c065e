"""What a report says of a deviation that libraries share is a declaration with which the function passes."""

import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from made_verdicts import NAN, OFF, fail
from tests_support import command

from attnspec.conformance.render.shared import declaration_lines, variant_lines

ADDED = """
import numpy as np


def attention(query, key, value, *, scale=None, mask=None):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    groups = query.shape[-3] // key.shape[-3] if query.ndim > 2 and key.shape[-3] else 1
    key, value = (np.repeat(x, groups, axis=-3) if groups > 1 else x for x in (key, value))
    with np.errstate(all="ignore"):
        scores = np.einsum("...ld,...sd->...ls", query, key) * np.asarray(scale, query.dtype)
        if mask is not None:
            scores = scores + np.where(mask, 0, -np.inf).astype(scores.dtype)
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(top == -np.inf, 0, top))
        total = weights.sum(axis=-1, keepdims=True)
        return (weights / np.where(total == 0, 1, total) @ value).astype(query.dtype)
"""


RAISING = """
from attnspec.reference import attention as right


def attention(query, key, value, *, scale=None):
    key.max(axis=-2)
    return right(query, key, value, scale=scale, dtype=query.dtype)
"""


WIDE = """
import numpy as np
from attnspec.reference import attention as right


def attention(query, key, value, *, scale=None):
    return right(query, key, value, scale=scale, dtype=query.dtype).astype(np.float64)
"""


OF_32_BITS = """
import numpy as np
from attnspec.reference import attention as right


def attention(query, key, value, *, window=None):
    sides = [side + 1 for side in window or () if side is not None]
    if any(side >= 2**31 for side in sides):
        raise OverflowError("Python int too large to convert to C long")
    return right(query, key, value, window=window, dtype=query.dtype)
"""


@pytest.mark.usefixtures("here_beside_tests")
@pytest.mark.parametrize(
    ("source", "rules", "known"),
    [
        (ADDED, ["MASK-12", "MASK-6"], "known: torch-sdpa, torch-math, torch-flash"),
        (RAISING, ["SHAPE-7"], "SHAPE-7 requires a result"),
        (OF_32_BITS, ["MASK-8"], "ERR-1 requires a result"),
        (WIDE, ["NUM-1"], "if the function documents this dtype"),
    ],
)
def test_with_the_declaration_that_is_printed_it_passes(source, rules, known):
    Path("added.py").write_text(source)
    words = ["check", "./added.py:attention", "--quick", *(x for rule in rules for x in ("--rule", rule))]
    run = command(*words, status=1)
    assert known in run.output
    (begin,) = re.findall(r"(?:to declare|if the).*, add .* begins with (.*) and (.*)\):", run.output)
    entries = re.search(r"^    \[\[backend.*?(?=^\S|^$)", run.output, re.DOTALL | re.MULTILINE)[0]
    assert source != RAISING or '"CACHE-10"' in entries, (
        "a rule under which no case of this run has such calls"
    )
    sources = re.findall(r'source = "(.*)"', entries)
    assert sources, "the source is of the function, and of no library"
    assert all(re.match(r"attnspec check ./added\.py|added\.py:\d+", source) for source in sources)
    Path("attnspec.toml").write_text("\n".join([*begin, dedent(entries)]))
    command("check", *words[2:], status=0)


def test_nothing_is_known_of_other_failures():
    (known,) = fail(1, "MASK-12", name="masking-finite-garbage", operation="attention", difference=NAN)
    assert next(declaration_lines([known])).startswith("known: torch-sdpa")
    others = ({"difference": OFF}, {"rule": "SOFT-1"}, {"case": "masking"}, {"dtype": "float16"})
    for fields in ({"operation": "paged_attention"}, *others):
        assert [*declaration_lines([known, replace(known, **fields)])] == [], fields


def test_a_variant_of_all_failures_is_declared_by_the_line_that_they_print():
    failures = fail(2, "GRAD-6", operation="attention_vjp", difference=OFF, variant="ignored")
    (line,) = variant_lines(failures)
    assert re.search(r'declare it: (GRAD-6 = "ignored") in attnspec.toml, under \[backend.dialect\]', line)
    for fields in ({"variant": ""}, {"variant": "other"}, {"rule": "GRAD-7"}):
        assert [*variant_lines([failures[0], replace(failures[0], **fields)])] == [], fields
    assert [*variant_lines(fail(2, "GRAD-6", operation="attention_vjp", difference=OFF))] == []

"""An implementation that has only another operation than attention needs no attention."""

import inspect
import json
import re
import sys

import numpy as np
import pytest
from tests_support import command

from attnspec import reference
from attnspec.backends import Backend, BackendError, Unsupported, describe, implementation, load, load_library
from attnspec.backends.program.protocol import parse_handshake
from attnspec.conformance import check
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find

#: A golden vector of paged attention.
CASE = "paging-shared-float32"
FILE = """
from attnspec import reference
from attnspec.backends import implementation


def paged(query, key_pages, value_pages, *, block_table, key_lengths, scale=None):
    options = {"block_table": block_table, "key_lengths": key_lengths, "scale": scale}
    return reference.paged_attention(query, key_pages, value_pages, dtype=query.dtype, **options)


class Module:
    forward = staticmethod(paged)

    def __call__(self, *arrays, **options):
        return self.forward(*arrays, **options)


module, paged_attention = Module(), paged


@implementation(operation="paged_attention", dtypes=["float32"])
def decorated(query, key_pages, value_pages, *, block_table, key_lengths):
    return paged(query, key_pages, value_pages, block_table=block_table, key_lengths=key_lengths)
"""
TOML = """
[backend]
function = "{function}"
operation = "paged_attention"
"""


@pytest.fixture
def folder(here, monkeypatch):
    """A project with paged attention alone."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(here)])
    (here / "paging_alone.py").write_text(FILE)
    sys.modules.pop("paging_alone", None)
    return here


def assert_is_paged(backend):
    assert backend.function("attention") is None
    assert backend.not_understood == ()
    assert judge(backend, find(CASE)).status == "pass"
    for name in ("masking-causal-square-float32", "numerics-call-repeated-plain-1-float32"):
        found = judge(backend, find(name))
        assert (found.status, found.lacks, found.declined) == ("unsupported", ("operation attention",), False)


def test_a_function_is_found_by_its_name_or_its_decorator(folder):
    assert_is_paged(load("paging_alone:paged_attention"))
    assert_is_paged(load(f"{folder / 'paging_alone.py'}:paged_attention?dtype=float32"))
    backend = load("paging_alone:decorated")
    assert_is_paged(backend)
    assert backend.dtypes == ("float32",)
    from paging_alone import paged

    assert_is_paged(describe(paged, operation="paged_attention"))
    assert_is_paged(describe(implementation(operation="paged_attention")(paged)))
    assert_is_paged(Backend("b", load_library("numpy"), companions={"paged_attention": paged}))
    assert check(paged, operation="paged_attention", cases=[CASE]).good


@pytest.mark.parametrize("function", ["paging_alone:paged", "paging_alone:module"])
def test_a_configuration(folder, function):
    (folder / "attnspec.toml").write_text(TOML.format(function=function))
    assert_is_paged(load("."))
    more = '[backend.companions]\nrotary = "attnspec.reference:rotary"\n'
    (folder / "attnspec.toml").write_text(TOML.format(function=function) + more)
    assert {*load(".").companions} == {"paged_attention", "rotary"}


def test_a_program_or_a_function_that_is_not_trusted_has_one_operation(folder):
    place = "paging_alone:paged_attention"
    served = f'"{sys.executable}" -m attnspec.backends.program.serve {place}'
    assert_is_paged(load(f"program:{served}"))
    hello = {"protocol": 1, "dtypes": ["float32"], "operations": {"rotary": []}}
    assert parse_handshake("p", json.dumps(hello)).operations == {"rotary": ()}
    split = "return np.swapaxes(features.reshape(*features.shape[:-1], heads, -1), -2, -3).copy()"
    (folder / "own.py").write_text(f"import numpy as np\ndef split_heads(features, *, heads):\n    {split}\n")
    backend = load("untrusted:./own.py:split_heads")
    assert backend.function("attention") is None
    assert judge(backend, find("heads-split-float32")).status == "pass"
    run = command("smoke", "paging_alone:paged_attention", status=0)
    assert "float32, float64, with block_table, key_lengths, scale" in run.output
    assert "a call in float32 gave output [[[" in run.output


def test_a_run_conforms_or_fails_and_nothing_is_judged_without_an_operation(folder):
    options = ["check", "paging_alone:paged_attention", "--rule", "PAGE-1", "--rule", "MASK-3", "--table"]
    run = command(*options, status=0)
    assert re.search(r"not offered: \d+ cases of the operations attention, ", " ".join(run.output.split()))
    assert judge(describe(wrong, operation="paged_attention"), find(CASE)).status in ("fail", "error")
    with pytest.raises(BackendError, match="expected attention or companions, got neither"):
        describe(Backend("b", load_library("numpy")))


def wrong(query, key_pages, value_pages, *, block_table, key_lengths):
    return reference.paged_attention(
        query, key_pages, value_pages, block_table=block_table[..., ::-1], key_lengths=key_lengths
    ).astype(query.dtype)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "of paged_attention; name the function paged_attention, or write operation = "),
        ({"operation": "rotary"}, "operation: expected a function of rotary with features, got query,"),
        ({"operation": "pagged_attention"}, "got 'pagged_attention' (paged_attention?)"),
        ({"operation": "paged_attention", "axes": 4, "loop": True}, "no key of attention alone, got loop"),
        ({"operation": "paged_attention", "layout": "BS(HD)"}, "no key of attention alone, got layout"),
        (
            {"operation": "paged_attention", "names": {"block_table": "table"}},
            "expected a function with table, got query, key_pages, value_pages, block_table, key_lengths",
        ),
        (
            {"operation": "packed_attention", "names": {"value": "value_pages", "key": "key_pages"}},
            "expected a function with query_starts, key_starts, got",
        ),
        ({"sizes": {"longest_keys": "n"}}, "sizes: expected some of batch, query_heads, key_heads, queries,"),
    ],
)
def test_what_cannot_be_used(keys, message):
    with pytest.raises(BackendError, match=re.escape(message)):
        describe(wrong, **keys)


def test_a_function_of_packed_attention_without_its_arguments_is_attention():
    def packed_attention(query, key, value):
        return np.zeros((*query.shape[:-1], value.shape[-1]))

    assert describe(packed_attention).function("attention") is packed_attention


PACKED = {
    "query": np.ones((4, 5, 2)),
    "key": np.ones((2, 7, 2)),
    "value": np.ones((2, 7, 3)),
    "query_starts": np.array([0, 2, 5]),
    "key_starts": np.array([0, 3, 7]),
}
PAGED = {
    "query": np.ones((3, 4, 5, 2)),
    "key_pages": np.ones((9, 2, 4, 2)),
    "value_pages": np.ones((9, 2, 4, 3)),
    "block_table": np.zeros((3, 2), int),
    "key_lengths": np.array([5, 8, 1]),
}


def arrays_of(call):
    return list(call.values())[:3]


def options_of(call):
    return dict(list(call.items())[3:])


@pytest.mark.parametrize(
    ("operation", "call", "sizes"),
    [
        (
            "packed_attention",
            PACKED,
            {"batch": 2, "queries": 5, "keys": 7, "longest_queries": 3, "longest_keys": 4},
        ),
        ("paged_attention", PAGED, {"batch": 3, "queries": 5, "keys": 8, "longest_keys": 8, "page": 4}),
    ],
)
def test_a_function_is_passed_the_sizes_that_it_asks_for(operation, call, sizes):
    sizes |= {"query_heads": 4, "key_heads": 2, "depth": 2, "value_depth": 3}
    passed = {}

    def take(query, *arrays, **given):
        passed.update(given)
        return query

    signature = inspect.signature(reference.function(operation))
    kept = [parameter for name, parameter in signature.parameters.items() if name in call]
    more = [inspect.Parameter(f"n_{name}", inspect.Parameter.KEYWORD_ONLY) for name in sizes]
    take.__signature__ = signature.replace(parameters=[*kept, *more])
    named = {name: f"n_{name}" for name in sizes}
    backend = describe(take, operation=operation, sizes=named)
    backend.function(operation)(*arrays_of(call), **options_of(call))
    assert {name: passed[own] for name, own in named.items()} == sizes


def test_an_option_that_is_always_on_or_always_passed():
    passed = {}

    def causal(query, key, value, query_starts, key_starts, scale, softcap=1.0):
        passed.update(scale=scale, softcap=softcap)
        return query

    keys = {"always": {"is_causal": True}, "given": ["softcap"], "operation": "packed_attention"}
    run = describe(causal, **keys).function("packed_attention")
    arrays, options = arrays_of(PACKED), options_of(PACKED)
    assert run(*arrays, **options, is_causal=True) is arrays[0]
    assert passed == {"scale": 2**-0.5, "softcap": None}
    with pytest.raises(Unsupported, match="always applies is_causal = True"):
        run(*arrays, **options)


def test_results_and_parameters_are_those_of_the_operation():
    def packed(query, key, value, query_starts, key_starts):
        return "output", "lse", "other"

    keys = {"returns": ["output", "lse", "_"], "operation": "packed_attention"}
    run = describe(packed, **keys).function("packed_attention")
    arrays, options = arrays_of(PACKED), options_of(PACKED)
    assert run(*arrays, **options) == "output"
    assert run(*arrays, **options, return_lse=True) == ("output", "lse")

    def packed(q, key, value, query_starts, key_starts, splits=1):
        return q

    backend = describe(packed, operation="packed_attention", names={"query": "q"})
    assert backend.not_understood == ("packed_attention: splits",)
    ignored = describe(packed, operation="packed_attention", names={"query": "q"}, ignore=["splits"])
    assert ignored.not_understood == ()

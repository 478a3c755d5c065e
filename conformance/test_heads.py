"""The chapter `heads`: shared key heads, splitting and merging, multi-head attention."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.suite.options import biased, dropout, sinks
from attnspec.conformance.suite.problem import GROUPED, SETTINGS, grid, problems
from attnspec.conformance.suite import Record, check, check_golden, exact, golden, require, rule

#: (batch axes, tokens, heads, depth of a head): as many tokens as heads among them, where a reshape
#: without the transposition has the right shape.
_SPLITS = (((2,), 3, 2, 4), ((), 3, 3, 2), ((2, 1), 4, 4, 1), ((), 5, 1, 3))


@golden("heads")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("HEAD-1", variants=("tiled",))
@SETTINGS
@given(data=st.data())
def test_shared_key_heads(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Groups of two, three and five query heads read one key head each."""
    check(backend, "HEAD-1", data.draw(problems(backend, GROUPED)).arguments, record_property)


@rule("HEAD-1")
@SETTINGS
@given(data=st.data())
def test_shared_heads_are_repeated_in_place(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """The result is that of as many key heads as query heads, each repeated next to itself."""
    if "HEAD-1" in backend.dialect:
        pytest.skip(f"{backend.name} declares another order")
    problem = data.draw(problems(backend, GROUPED))
    groups = problem.query.shape[-3] // problem.key.shape[-3]
    repeated = {name: np.repeat(problem.arguments[name], groups, axis=-3) for name in ("key", "value")}
    expected = exact(problem.arguments | repeated)
    check(backend, "HEAD-1", problem.arguments, record_property, expected=expected)


@rule("HEAD-1")
@pytest.mark.parametrize("option", ["mask", "bias", "sinks", "dropout", "softcap", "is_causal"])
@SETTINGS
@given(data=st.data())
def test_options_belong_to_query_heads(
    option: str, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """What is given for each head is given for each query head, not for each key head."""
    problem = data.draw(problems(backend, GROUPED))
    options: dict[str, dict[str, Any]] = {
        "mask": {"mask": problem.mask()},
        "bias": {"bias": biased(problem)},
        "sinks": sinks(problem),
        "dropout": dropout(problem),
        "softcap": {"softcap": 0.5},
        "is_causal": {"is_causal": True},
    }
    check(backend, "HEAD-1", problem.arguments | options[option], record_property)


@rule("HEAD-3", "HEAD-4")
@SETTINGS
@given(sizes=st.sampled_from(_SPLITS), seed=st.integers(0, 2**16), data=st.data())
def test_splitting_and_merging(
    sizes: tuple[tuple[int, ...], int, int, int],
    seed: int,
    data: st.DataObject,
    backend: Backend,
    record_property: Record,
) -> None:
    """Features are cut into consecutive blocks, and put together again; nothing is rounded."""
    batch, count, heads, depth = sizes
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    features = grid(random, (*batch, count, heads * depth), 1.0).astype(dtype)
    split = grid(random, (*batch, heads, count, depth), 1.0).astype(dtype)
    require(backend, operation="split_heads")
    check(
        backend,
        "HEAD-3",
        {"features": features, "heads": heads},
        record_property,
        operation="split_heads",
    )
    require(backend, operation="merge_heads")
    check(backend, "HEAD-4", {"split": split}, record_property, operation="merge_heads")


def _tokens_and_weights(
    random: np.random.Generator, dtype: str, heads: int, key_heads: int, *, memory: int = 0
) -> dict[str, Any]:
    """Two batch entries of three tokens of depth 5; heads of depth 2, of 3 for the values.

    `memory` is the depth of what keys and values are projected from, if that is not the tokens.
    """
    inner = memory or 5
    shapes = {
        "tokens": (2, 3, 5),
        "query_weight": (5, heads * 2),
        "key_weight": (inner, key_heads * 2),
        "value_weight": (inner, key_heads * 3),
        "output_weight": (heads * 3, 4),
    }
    shapes |= {"memory": (2, 6, memory)} if memory else {}
    arguments: dict[str, Any] = {
        name: grid(random, shape, 0.5).astype(dtype) for name, shape in shapes.items()
    }
    return arguments | {"heads": heads} | ({"key_heads": key_heads} if key_heads != heads else {})


@rule("HEAD-6")
@pytest.mark.parametrize("key_heads", [4, 2, 1])
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_multi_head_attention(
    key_heads: int, seed: int, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """With every option in every combination, and with shared key heads."""
    require(backend, operation="multi_head_attention")
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    arguments = _tokens_and_weights(random, dtype, 4, key_heads)
    every: dict[str, Any] = {
        f"{name}_bias": grid(random, arguments[f"{name}_weight"].shape[-1:], 1.0).astype(dtype)
        for name in ("query", "key", "value", "output")
    }
    every |= {"scale": 0.5, "is_causal": True, "mask": random.random((4, 3, 3)) < 0.7}
    options = {name: thing for name, thing in every.items() if random.random() < 0.5}
    check(backend, "HEAD-6", arguments | options, record_property, operation="multi_head_attention")


@rule("HEAD-6", "MASK-6")
@pytest.mark.parametrize("masked", ["nothing", "some", "a row"])
@pytest.mark.parametrize("heads", [4, 3])
def test_multi_head_attention_of_one_width(
    heads: int, masked: str, backend: Backend, record_property: Record
) -> None:
    """Tokens, heads together and output of one width, for which some libraries have a path of their own."""
    require(backend, operation="multi_head_attention")
    width = heads * 2
    for dtype in tried(backend.dtypes):
        random = np.random.default_rng(heads)
        arguments: dict[str, Any] = {"tokens": grid(random, (2, 3, width), 0.5).astype(dtype), "heads": heads}
        for name in ("query", "key", "value", "output"):
            arguments[f"{name}_weight"] = grid(random, (width, width), 0.5).astype(dtype)
            arguments[f"{name}_bias"] = grid(random, (width,), 0.5).astype(dtype)
        if masked != "nothing":
            mask = random.random((2, heads, 3, 3)) < 0.7
            mask[..., 0] = True
            mask[..., 1, :] &= masked == "some"
            arguments["mask"] = mask
        rule_id = "MASK-6" if masked == "a row" else "HEAD-6"
        check(backend, rule_id, arguments, record_property, operation="multi_head_attention")


@rule("HEAD-7")
@pytest.mark.parametrize("depth", [4, 5])
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_cross_attention(
    depth: int, seed: int, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Keys and values are projected from a longer memory, of another depth than the tokens' and of theirs."""
    require(backend, "memory", operation="multi_head_attention")
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    arguments = _tokens_and_weights(random, dtype, 2, 2, memory=depth)
    options = {"mask": random.random((2, 2, 3, 6)) < 0.7} if random.random() < 0.5 else {}
    check(backend, "HEAD-7", arguments | options, record_property, operation="multi_head_attention")

"""The translation of ONNX's Attention to calls of attnspec agrees with ONNX's two implementations.

Where these differ from the text, or from each other, that is pinned at the end: a test that fails there says
that ONNX has changed, and spec/dialects.md with it.
"""

import numpy as np
import pytest
from onnx_attention import onnx_attention
from onnx_nodes import INPUTS, OUTPUTS, Node, bounds, by_body, by_reference

from attnspec.reference import ArgumentError, allowed_keys

#: The function body takes the default scale in float32, whatever the inputs are: pinned below.
BODY_UNIT = 2.0**-24

BOTH = pytest.mark.parametrize("compute", [by_body, by_reference])

# A row that is masked altogether is NaN on the way.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")


def by_us(node):
    return onnx_attention(node.attributes, node.inputs, opset=node.opset)


def differing(found, ours, allowed):
    """Outputs that are not the same; dtype, shape and infinities have to be equal."""
    return [
        name
        for name, array in found.items()
        if (array.dtype, array.shape) != (ours[name].dtype, ours[name].shape)
        or not np.allclose(array.astype(float), ours[name].astype(float), rtol=0, atol=allowed[name])
    ]


def test_the_cases_that_onnx_ships_are_calls_of_ours():
    import onnx.backend.test.case.node.attention  # fills the list
    from onnx.backend.test.case.node import _NodeTestCases as cases

    own = [case for case in cases if case.model.graph.node[0].op_type == "Attention"]  # the others: bodies
    for case in own:
        (written,), ((given, expected),) = case.model.graph.node, case.data_sets
        given = dict(zip((v.name for v in case.model.graph.input), given, strict=True))
        inputs = {name: given[n] for name, n in zip(INPUTS, written.input, strict=False) if n}
        wanted = [name for name, n in zip(OUTPUTS, written.output, strict=False) if n]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in written.attribute}
        node = Node(case.model.opset_import[0].version, attributes, inputs)
        found = dict(zip(wanted, expected, strict=True))
        if expected[0].itemsize == 2:  # how far half precision may be off says nothing: the same in float64
            wide = {n: a.astype(float) if a.itemsize == 2 else a for n, a in inputs.items()}
            node = Node(node.opset, attributes, wide)
            found = by_reference(node)
        assert not differing(found, by_us(node), bounds(node, BODY_UNIT)), case.name
    assert len(own) > 90


# Differences of ONNX from its own text, and what the text leaves open.


def small(opset=25, keys=4, **more):
    """Three queries and four keys, four heads on two, with the inputs and attributes that are given."""
    rng = np.random.default_rng(7)
    shapes = {"Q": (2, 4, 3, 5), "K": (2, 2, keys, 5), "V": (2, 2, keys, 3)}
    inputs = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    inputs |= {name: more.pop(name) for name in INPUTS if name in more}
    return Node(opset, more, inputs)


def same(found, ours, node, name="Y"):
    return not differing({name: found[name]}, ours, bounds(node, BODY_UNIT))


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_the_reference_caps_the_raw_scores_of_mode_0(opset):
    node = small(opset, softcap=1.0, qk_matmul_output_mode=0)
    capped = by_us(small(opset, softcap=1.0, qk_matmul_output_mode=1))
    assert same(by_reference(node), capped, node, "qk_matmul_output")
    assert not same(by_reference(node), by_us(node), node, "qk_matmul_output")
    assert same(by_body(node), by_us(node), node, "qk_matmul_output")


@pytest.mark.parametrize("shape", [(1, 4), (2, 1, 1, 4)])
def test_the_reference_takes_a_mask_of_one_row_for_one_query(shape):
    mask = np.ones(shape, dtype=bool)
    node = small(attn_mask=mask, is_causal=1)
    first = mask & allowed_keys((1, 4), is_causal=True)  # the causal mask of query 0, for every query
    assert same(by_reference(node), by_us(small(attn_mask=first)), node)
    assert not same(by_reference(node), by_us(node), node)
    assert same(by_body(node), by_us(node), node)


def test_the_reference_fails_on_a_causal_mask_of_one_axis():
    node = small(attn_mask=np.ones(4, dtype=bool), is_causal=1)
    with pytest.raises(ValueError, match="unpack"):
        by_reference(node)
    assert same(by_body(node), by_us(node), node)
    node = small(softcap=-1.0)
    assert same(by_reference(node), by_us(small()), node)
    assert same(by_body(node), by_us(small(softcap=1.0)), node)
    with pytest.raises(ArgumentError, match="SCORE-6"):
        by_us(node)
    node = small(V=small().inputs["V"].astype(np.float32))
    assert same(by_reference(node), by_us(node), node)
    with pytest.raises(RuntimeError, match="type mismatch"):
        by_body(node)


def test_the_reference_pads_masks_of_opset_23():
    mask = np.ones((3, 1), dtype=bool)
    node = small(23, attn_mask=mask)
    assert same(by_reference(node), by_us(small(24, attn_mask=mask)), node)
    assert same(by_body(node), by_us(node), node)
    assert not same(by_reference(node), by_us(node), node)
    short = small(23, attn_mask=np.ones((3, 2), dtype=bool))
    with pytest.raises(TypeError):
        by_body(short)
    with pytest.raises(ArgumentError, match="ERR-15"):
        by_us(short)


@pytest.mark.parametrize(("compute", "given"), [(by_body, {}), (by_reference, {"scale": 0.3125})])
def test_the_root_of_the_scale_is_taken_in_float32(compute, given):
    off = np.abs(compute(small(**given))["Y"] - by_us(small(**given))["Y"]).max()
    assert 1e-10 < off < 1e-6


@BOTH
def test_what_onnx_makes_of_a_negative_scale_no_key_and_integers(compute):
    node = small(scale=-1.0)
    assert np.isnan(compute(node)["Y"]).all()
    assert np.isfinite(by_us(node)["Y"]).all()
    assert not by_us(small(keys=0))["Y"].any()
    with pytest.raises(ValueError, match="size"):
        compute(small(keys=0))
    node, added = (small(attn_mask=a.reshape(3, 4)) for a in (np.arange(12), np.arange(12.0)))
    assert same(compute(node), by_us(added), added)
    with pytest.raises(ArgumentError, match="ERR-2"):
        by_us(node)


@pytest.mark.parametrize("name", ["K", "V"])
@BOTH
def test_nan_in_an_unused_place_of_a_cache_spreads_in_onnx(compute, name):
    node = small(nonpad_kv_seqlen=np.array([3, 2]))
    node.inputs[name][:, :, 3] = np.nan
    assert np.isnan(compute(node)["Y"]).all()
    assert np.isfinite(by_us(node)["Y"]).all()


@pytest.mark.parametrize("opset", [23, 24])
def test_numbers_of_heads_beside_four_axes_are_for_the_body_three_axes(opset):
    node = small(opset, q_num_heads=4, kv_num_heads=2)
    assert same(by_reference(node), by_us(node), node)
    assert by_body(node)["Y"].shape == (2, 3, 12)


@pytest.mark.parametrize("length", [-1, 5])
@BOTH
def test_lengths_out_of_range_are_taken_literally_by_onnx(compute, length):
    node = small(nonpad_kv_seqlen=np.array([2, length]))
    assert same(compute(node), by_us(small(nonpad_kv_seqlen=np.array([2, min(max(length, 0), 4)]))), node)
    with pytest.raises(ArgumentError, match="ERR-9"):
        by_us(node)

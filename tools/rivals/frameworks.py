"""The acceptance rules of frameworks and of benchmarks of kernels, each with the inputs of its source."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from attnspec.reference import split_heads
from tools.rivals.closeness import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    arrays,
    close,
    close_to_data,
    normal,
    uniform,
    wide,
)
from tools.rivals.rival import Array, Rival, Trial

_SHAPE = (2, 4, 128, 32)
_MODES = (
    ("bias",),
    ("causal",),
    ("padding",),
    ("custom",),
    ("causal", "padding"),
    ("custom", "padding"),
    ("bias", "causal"),
    ("causal", "sliding_window"),
)


def _draw_jax_nn() -> list[Trial]:
    """Draw the calls of both tests."""
    rng = np.random.default_rng(0)
    trials = []
    for dtype, groups in ((BFLOAT16, 1), (FLOAT16, 2), (BFLOAT16, 4)):
        given = arrays(rng, dtype, _SHAPE, (2, 4 // groups, 128, 32))
        trials.append(Trial({**given, "return_lse": True}))
    trials += [Trial({**arrays(rng, BFLOAT16, _SHAPE), **_options(mode, rng)}) for mode in _MODES]
    return trials


def _options(mode: tuple[str, ...], rng: np.random.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {"is_causal": "causal" in mode}
    if "padding" in mode:
        options |= {"query_lengths": np.array([64, 32]), "key_lengths": np.array([32, 64])}
    if "custom" in mode:
        options["mask"] = np.tri(128, dtype=bool)[None, None]
    if "bias" in mode:
        options["bias"] = normal(rng, (1, 4, 128, 128), BFLOAT16)
    if "sliding_window" in mode:
        options["window"] = (3, 2)
    return options


JAX_NN = (
    Rival(
        "JAX",
        "https://github.com/jax-ml/jax/blob/cec06d116c05f0d52adfceee3d3b730fdbcb0ce5/tests/nn_test.py",
        "`assertAllClose`, 1e-2 and 1e-2; output, and lse where it is returned",
        "normal, float16 and bfloat16, 128 queries and keys, depth 32, batch 2 with 4 heads over 4, 2 and"
        " 1, bias, causal, mask, lengths, window: all 11 calls at their size",
        _draw_jax_nn,
        close(1e-2, 1e-2, nan_equal=True, lse=True, exact=True),
    ),
)


_SAMPLES = (
    "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/testing/_internal/common_methods_invocations.py"
)
_BACKENDBENCH = (
    "https://github.com/meta-pytorch/BackendBench/blob/66e0dbc05a683e537830c246ea83255ff227676f"
    "/BackendBench/eval.py"
)
_INPUTS = (
    "the 7 kinds of samples without dropout: uniform from -9 to 9, 3 queries, 6 keys, depth 8, batch 4 with"
    " 4 heads; causal from the top left or not, once a bias"
)


def _draw_opinfo(dtype: Any) -> list[Trial]:
    """Draw the samples that have no dropout, whose random numbers an implementation cannot know."""
    rng = np.random.default_rng(0)
    distribution = partial(uniform, low=-9.0, high=9.0)
    trials = []
    for batch in ((4,), (4, 4), (4, 4)):
        for causal in (True, False):
            given = arrays(rng, dtype, (*batch, 3, 8), (*batch, 6, 8), distribution=distribution)
            trials.append(Trial({**given, "is_causal": causal}))
    given = arrays(rng, dtype, (4, 4, 3, 8), (4, 4, 6, 8), distribution=distribution)
    return [*trials, Trial({**given, "bias": distribution(rng, (3, 6), dtype)})]


OPINFO = (
    Rival("PyTorch, OpInfo", _SAMPLES, "`assert_close`, absolute 5e-5, relative 5e-6", _INPUTS + "; float32",
        partial(_draw_opinfo, FLOAT32), close(5e-5, 5e-6, nan_equal=True, exact=True)),
    Rival("BackendBench", _BACKENDBENCH, "`assert_close`, 1e-2 and 1e-2, NaN equals NaN",
        "samples of OpInfo: " + _INPUTS + "; bfloat16", partial(_draw_opinfo, BFLOAT16),
        close(1e-2, 1e-2, nan_equal=True, swapped=True, exact=True)),
)  # fmt: skip


_INPUTS_OF_NODES = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
#: The value of `qk_matmul_output_mode` for which the second result is the weights.
_WEIGHTS = 3


def _draw_onnx_nodes() -> list[Trial]:
    """Translate the cases. The split of packed heads and the cache are done for the implementation.

    Results that no call of attention has, such as the cache, are not compared. Cases whose values have
    another dtype are left out, as a call may refuse them. So are those in bfloat16, whose spacing is wider
    than the tolerance.
    """
    from onnx import helper
    from onnx.backend.test.case.node import _NodeTestCases as cases

    import_module("onnx.backend.test.case.node.attention")  # fills the list
    trials = []
    for case in cases:
        node = case.model.graph.node[0]
        if node.op_type != "Attention" or len(case.model.graph.node) > 1:
            continue
        given, expected = case.data_sets[0]
        names = [tensor.name for tensor in case.model.graph.input]
        by_name = dict(zip(names, given, strict=True))
        inputs = {name: by_name[own] for name, own in zip(_INPUTS_OF_NODES, node.input, strict=False) if own}
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if inputs["V"].dtype == inputs["Q"].dtype != BFLOAT16:
            trials.append(_trial(inputs, attributes, list(node.output), expected))
    return trials


def _trial(
    inputs: dict[str, Array], attributes: dict[str, Any], names: list[str], expected: list[Array]
) -> Trial:
    query, key, value = (inputs[name] for name in "QKV")
    output = expected[0]
    if query.ndim == 3:
        heads, key_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
        query = split_heads(query, heads=heads, dtype=query.dtype)
        key, value = (split_heads(array, heads=key_heads, dtype=array.dtype) for array in (key, value))
        output = split_heads(output, heads=heads, dtype=output.dtype)
    past = 0
    if "past_key" in inputs:
        past = inputs["past_key"].shape[-2]
        key = np.concatenate([inputs["past_key"], key], axis=-2)
        value = np.concatenate([inputs["past_value"], value], axis=-2)
    lengths = inputs.get("nonpad_kv_seqlen")
    bounds = tuple(attributes.get(name, -1) for name in ("left_window_size", "right_window_size"))
    weights = len(names) > 3 and bool(names[3]) and attributes.get("qk_matmul_output_mode", 0) == _WEIGHTS
    options: dict[str, Any] = {
        "scale": attributes.get("scale"),
        "softcap": attributes.get("softcap") or None,
        "is_causal": bool(attributes.get("is_causal", 0)),
        # The last of the queries stands at the last key that counts.
        "query_offset": past if lengths is None else lengths - query.shape[-2],
        "window": tuple(None if bound == -1 else bound for bound in bounds),
        "key_lengths": lengths,
        **_mask(inputs.get("attn_mask"), key.shape[-2]),
        "return_weights": weights,
    }
    given = {"query": query, "key": key, "value": value}
    given |= {name: option for name, option in options.items() if option is not None}
    return Trial(given, (output, expected[-1]) if weights else (output,))


def _mask(attn_mask: Array | None, keys: int) -> dict[str, Array]:
    """Tell a mask from a bias. The keys that a short last axis lacks are disallowed."""
    if attn_mask is None:
        return {}
    is_mask = attn_mask.dtype == bool
    missing = keys - attn_mask.shape[-1]
    if missing > 0 and attn_mask.shape[-1] > 1:
        widths = [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)]
        attn_mask = np.pad(attn_mask, widths, constant_values=False if is_mask else -np.inf)
    return {"mask" if is_mask else "bias": attn_mask}


ONNX_NODES = (
    Rival(
        "ONNX",
        "https://github.com/onnx/onnx/blob/v1.23.2/onnx/backend/test/case/node/attention.py",
        "`assert_allclose`, absolute 1e-7, relative 1e-3, against the data of ONNX",
        "the node cases of Attention, opset 23 to 25, uniform from 0 to 1, float32 and float16, up to 18"
        " keys; not those in bfloat16, which correct implementations fail: its spacing, 2^-8, exceeds the"
        " tolerance",
        _draw_onnx_nodes,
        close_to_data(1e-7, 1e-3),
    ),
)


#: Batch, queries, keys, depth, causal, whether the scale is 1 / depth, dtype.
_CALLS = (
    (8, 4, 8, 8, False, False, FLOAT16),
    (8, 8, 8, 16, True, True, BFLOAT16),
    (1, 64, 64, 32, True, False, FLOAT16),
    (1, 143, 128, 64, False, False, BFLOAT16),
    (1, 64, 128, 21, False, True, FLOAT16),
    (1, 256, 256, 72, True, False, BFLOAT16),
)


def _draw_transformers() -> list[Trial]:
    """Draw calls of the flash path, and one with a bias of the memory-efficient path."""
    rng = np.random.default_rng(0)
    trials = []
    for batch, queries, keys, depth, causal, is_inverse, dtype in _CALLS:
        shapes = ((batch, 4, queries, depth), (batch, 4, keys, depth))
        options = {"is_causal": causal, "scale": 1 / depth if is_inverse else None}
        trials.append(Trial({**arrays(rng, dtype, *shapes, distribution=uniform), **options}))
    given = arrays(rng, FLOAT16, (1, 4, 64, 16), (1, 4, 128, 16), distribution=uniform)
    return [*trials, Trial({**given, "bias": uniform(rng, (64, 128), FLOAT16)})]


def _accepts_transformers(got: tuple[Array, ...], trial: Trial) -> bool:
    """Whether the output is close within the errors of plain arithmetic, absolute and relative."""
    dtype = trial.given["query"].dtype
    exact, own = wide(trial.exact[0]), wide(trial.own)
    fudge = 3.0 if trial.given["query"].shape[-1] % 8 else 1.0
    relative = fudge * max(float(np.abs((exact - own) / exact).max()), 1e-3 if dtype == FLOAT16 else 1.6e-2)
    absolute = fudge * max(float(np.abs(exact - own).max()), 1e-3)
    expected = wide(trial.exact[0].astype(dtype))
    return (got[0].shape, got[0].dtype) == (expected.shape, dtype) and np.allclose(
        wide(got[0]), expected, rtol=relative, atol=absolute, equal_nan=True
    )


TRANSFORMERS = (
    Rival(
        "PyTorch, test_transformers",
        "https://github.com/pytorch/pytorch/blob/00030eb8e81f911c48c4d7634fa6b8bb2fae1a1b/test/test_transformers.py",
        "`assertEqual` within the largest absolute and relative error of the math path in the same dtype,"
        " or 1e-3 and 1e-3 (float16) or 1.6e-2 (bfloat16); 3 times that where the depth is no multiple of 8",
        "`torch.rand`, float16 and bfloat16, 4 heads, 7 calls of 4 to 256 queries and keys, depth 8 to 72,"
        " causal, scale, once a bias; up to 2048 in the source",
        _draw_transformers,
        _accepts_transformers,
    ),
)


_SOURCE = (
    "https://github.com/ScalingIntelligence/KernelBench/blob/423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
    "/src/kernelbench/eval.py"
)
_INPUTS_OF_KERNELBENCH = (
    "`torch.rand`, float32, no option, 512 queries and keys, depth 1024, 1 trial of 5;"
    " batch 1 with 1 head, 32 with 32 in the source"
)


def _draw_kernelbench() -> list[Trial]:
    """Draw one of the five trials, which differ in their random numbers only."""
    rng = np.random.default_rng(42)
    return [Trial(arrays(rng, FLOAT32, (1, 1, 512, 1024), distribution=uniform))]


KERNELBENCH = (
    Rival("KernelBench, v0 and half precision", _SOURCE, "`allclose`, 1e-2 and 1e-2", _INPUTS_OF_KERNELBENCH,
        _draw_kernelbench, close(1e-2, 1e-2, swapped=True)),
    Rival("KernelBench, float32", _SOURCE, "`allclose`, 1e-4 and 1e-4", _INPUTS_OF_KERNELBENCH,
        _draw_kernelbench, close(1e-4, 1e-4, swapped=True)),
)  # fmt: skip


def _draw_tritonbench() -> list[Trial]:
    """Draw the first sizes of the operator, without a mask and causal."""
    rng = np.random.default_rng(0)
    shapes = ((2, 4, 128, 64), (1, 1, 512, 64))
    return [
        Trial({**arrays(rng, BFLOAT16, shape), "is_causal": causal})
        for shape in shapes
        for causal in (False, True)
    ]


TRITONBENCH = (
    Rival(
        "tritonbench",
        "https://github.com/meta-pytorch/tritonbench/blob/db2155c807755c19f5d98c64917ec897f24061f3"
        "/tritonbench/operators/flash_attention/operator.py",
        "`assert_close`, absolute 2e-2, relative 1e-2; no NaN",
        "normal, bfloat16, causal or not, 128 and 512 queries and keys, depth 64; batch 2 with 4 heads and"
        " 1 with 1, 4 with 48 and up to 16384 in the source",
        _draw_tritonbench,
        close(2e-2, 1e-2),
    ),
)

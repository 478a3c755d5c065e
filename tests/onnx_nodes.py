"""Small nodes of ONNX's operator Attention, and the two ways in which ONNX itself computes one."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

onnx = pytest.importorskip("onnx", minversion="1.23")  # earlier ones give other numbers: see spec/dialects.md
reference_evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
HEADS = ((1, 1), (4, 2), (3, 3), (6, 1))
#: Squares, as ONNX multiplies both sides by the root of the scale and takes it in float32.
SCALES = (None, 0.0, 0.25, 2.25)
WINDOWS = ((-1, -1), (1, -1), (0, 1), (-1, 0), (2, 0))


@dataclass(frozen=True)
class Node:
    opset: int
    attributes: dict
    inputs: dict = field(repr=False)

    def outputs(self):
        """Those that may be asked for: where the cache is kept outside, nothing is present."""
        return OUTPUTS if "nonpad_kv_seqlen" not in self.inputs else (OUTPUTS[0], OUTPUTS[3])


def draw(rng, opset, *, flat=False, cache=None, causal=0, axes=None, boolean=True):
    """Draw a node: everything that is not given is chosen at random.

    `axes` are those of attn_mask, "1" for one that is broadcast and "s" for a short last one; `cache` is
    "past" or "lengths".
    """
    (heads, key_heads), dtype = HEADS[rng.integers(4)], (np.float32, np.float64)[rng.integers(2)]
    batch, queries, keys, depth, depth_v = 2, int(rng.integers(1, 5)), int(rng.integers(2, 7)), 5, 3
    past = int(rng.integers(0, 4)) if cache == "past" else 0
    total = past + keys
    sizes = {"B": batch, "H": heads, "L": queries, "S": total, "1": 1, "s": int(rng.integers(1, total))}

    def array(*shape):
        return (1.5 * rng.normal(size=shape)).astype(dtype)

    inputs = {
        "Q": array(batch, heads, queries, depth),
        "K": array(batch, key_heads, keys, depth),
        "V": array(batch, key_heads, keys, depth_v),
    }
    attributes = {
        "is_causal": causal,
        "qk_matmul_output_mode": int(rng.integers(4)),
        "softcap": (0.0, 1.5)[rng.integers(2)],
    }
    scale = SCALES[rng.integers(4)]
    attributes |= {} if scale is None else {"scale": scale}
    precision = (None, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)[rng.integers(3)]
    attributes |= {} if precision is None else {"softmax_precision": precision}
    if flat:
        inputs = {n: a.swapaxes(1, 2).reshape(batch, a.shape[2], -1) for n, a in inputs.items()}
        attributes |= {"q_num_heads": heads, "kv_num_heads": key_heads}
    if opset >= 25:
        left, right = WINDOWS[rng.integers(5)]
        attributes |= {"left_window_size": left, "right_window_size": right}
    if axes is not None:
        shape = tuple(sizes[axis] for axis in axes)
        chosen = rng.random(shape) < 0.7
        inputs["attn_mask"] = chosen if boolean else np.where(chosen, array(*shape), dtype(-np.inf))
    if cache == "past":
        inputs["past_key"] = array(batch, key_heads, past, depth)
        inputs["past_value"] = array(batch, key_heads, past, depth_v)
    if cache == "lengths":  # a short mask reaches as far as the longest, says the text
        most = total if axes is None or axes[-1] == "S" else sizes[axes[-1]]
        inputs["nonpad_kv_seqlen"] = rng.integers(0, most + 1, size=batch)
    return Node(opset, attributes, inputs)


def proto(node):
    """Write the node, and the types of its inputs by name."""
    last = max(i for i, name in enumerate(INPUTS) if name in node.inputs)
    names = [name if name in node.inputs else "" for name in INPUTS[: last + 1]]
    outputs = [name if name in node.outputs() else "" for name in OUTPUTS]
    types = {
        name: onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in node.inputs.items()
    }
    return onnx.helper.make_node("Attention", names, outputs, **node.attributes), types


def by_reference(node):
    """Run ONNX's NumPy reference."""
    written, types = proto(node)
    starts = [onnx.helper.make_value_info(name, type_) for name, type_ in types.items()]
    # The evaluator does not look at the types of outputs.
    ends = [onnx.helper.make_value_info(name, types["Q"]) for name in node.outputs()]
    graph = onnx.helper.make_graph([written], "attention", starts, ends)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", node.opset)])
    return dict(zip(node.outputs(), reference_evaluator(model).run(None, node.inputs), strict=True))


def by_body(node):
    """Run the function body of simpler operators that the operator's schema gives for the node."""
    written, types = proto(node)
    described = [types[name].SerializeToString() if name else b"" for name in written.input]
    schema = onnx.defs.get_schema("Attention", node.opset, "")
    body = onnx.FunctionProto.FromString(
        schema.get_context_dependent_function_with_opset_version(
            node.opset, written.SerializeToString(), described
        )
    )
    if not body.node:
        raise ValueError(f"the schema refuses to give a body for {node}")
    found = reference_evaluator(body).run(list(node.outputs()), node.inputs, attributes=node.attributes)
    return dict(zip(node.outputs(), found, strict=True))


def misread_by_reference(node):
    """Whether a node shows a difference between the reference and its text that test_onnx.py pins."""
    given, mask = node.attributes, node.inputs.get("attn_mask")
    capped = given["qk_matmul_output_mode"] == 0 and given["softcap"] > 0
    windowed = max(given.get("left_window_size", -1), given.get("right_window_size", -1)) >= 0
    narrow = mask is not None and (mask.ndim < 2 or mask.shape[-2] < node.inputs["Q"].shape[-2])
    return capped or (narrow and given["is_causal"] and not windowed)


def unit(dtype):
    """Unit roundoff."""
    return float(ml_dtypes.finfo(dtype).eps) / 2


def bounds(node, least=0.0):
    """How far each output may be off, by the counts of the chapter `numerics` taken at the largest numbers.

    `least` is the coarsest unit roundoff of an implementation that does not keep to the node's dtypes.
    """
    given, attributes = node.inputs, node.attributes
    numbers = {name: np.abs(a.astype(float)) for name, a in given.items() if a.dtype.kind not in "bi"}
    largest = {name: np.where(np.isfinite(a), a, 0).max(initial=0) for name, a in numbers.items()}
    depth = given["Q"].shape[-1] // (attributes["q_num_heads"] if given["Q"].ndim == 3 else 1)
    keys = given["K"].shape[-2] + (given["past_key"].shape[-2] if "past_key" in given else 0)
    products = depth * largest["Q"] * max(largest["K"], largest.get("past_key", 0))
    size = attributes.get("scale", depth**-0.5) * products + largest.get("attn_mask", 0)
    u = max(unit(given["Q"].dtype), least)
    if "softmax_precision" in attributes:
        u = max(u, unit(onnx.helper.tensor_dtype_to_np_dtype(attributes["softmax_precision"])))
    score = (depth + 8) * u * size
    weight = np.expm1(4 * score + (keys + 8) * u)
    value = max(largest["V"], largest.get("past_value", 0))
    raw = attributes.get("qk_matmul_output_mode", 0) < 3
    return {
        "Y": 2 * (weight + (keys + 2) * u) * value,
        "present_key": 0.0,
        "present_value": 0.0,
        "qk_matmul_output": score if raw else weight,
    }

"""Small nodes of ONNX's operator Attention, and the two ways in which ONNX itself computes one."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

onnx = pytest.importorskip("onnx", minversion="1.23")  # earlier ones give other numbers: see spec/dialects.md
reference_evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


@dataclass(frozen=True)
class Node:
    opset: int
    attributes: dict
    inputs: dict = field(repr=False)

    def outputs(self):
        """Those that may be asked for: where the cache is kept outside, nothing is present."""
        return OUTPUTS if "nonpad_kv_seqlen" not in self.inputs else (OUTPUTS[0], OUTPUTS[3])


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


def unit(dtype):
    """Unit roundoff."""
    return float(ml_dtypes.finfo(dtype).eps) / 2


def bounds(node, least=0.0):
    """How far each output may be off, by `numerics` at the largest numbers; `least` is the coarsest unit."""
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

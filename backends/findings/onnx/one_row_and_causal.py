"""ONNX, reference evaluator: beside is_causal a mask of one row is causal for the first query alone (MASK-4).

Rank: numbers
Impact: queries after the first lose the keys up to themselves, without an error.
Documentation: "Shape must be broadcastable to `(batch_size, q_num_heads, q_sequence_length, ...)`".
Cause: the causal mask is made with as many rows as attn_mask has, and then broadcast.
"""

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

arrays = {"Q": np.zeros((1, 1, 3, 1)), "K": np.zeros((1, 1, 3, 1)), "V": np.array([[[[0.0], [2.0], [4.0]]]])}
arrays = {name: array.astype(np.float32) for name, array in arrays.items()} | {"M": np.ones((1, 3), bool)}
kinds = dict.fromkeys("QKVY", TensorProto.FLOAT) | {"M": TensorProto.BOOL}
infos = {name: helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()}
node = helper.make_node("Attention", list("QKVM"), ["Y"], is_causal=1)
graph = helper.make_graph([node], "attention", [infos[name] for name in "QKVM"], [infos["Y"]])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
got = ReferenceEvaluator(model).run(None, arrays)[0].ravel().tolist()
print("expected [0.0, 1.0, 2.0]: the means of the values up to each query")
print(f"got {got}")
raise SystemExit(0 if got == [0.0, 0.0, 0.0] else 1)

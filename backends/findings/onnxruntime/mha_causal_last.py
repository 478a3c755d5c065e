"""ONNX Runtime: in a causal MultiHeadAttention with more keys, the last query attends to all keys (MASK-3).

Rank: promise
Impact: the last query sees later tokens.
Promise: "Whether every token can only attend to previous tokens" (page ContribOperators, on unidirectional)
Known: https://github.com/microsoft/onnxruntime/issues/29020 (on the alignment)
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,3,8] Q, float[1,5,8] K, float[1,5,8] V) => (float[1,3,8] Y)
{ Y = com.microsoft.MultiHeadAttention<num_heads = 1, unidirectional = 1>(Q, K, V) }"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
inputs = {"Q": np.zeros((1, 3, 8)), "K": np.zeros((1, 5, 8)), "V": np.eye(5, 8)[None]}
found = session.run(None, {name: array.astype(np.float32) for name, array in inputs.items()})[0]
got = np.count_nonzero(found[0], axis=-1).tolist()
print("expected [1, 2, 3] keys of the queries 0 to 2, or [3, 4, 5] if aligned at the last key")
print(f"got {got}")
raise SystemExit(0 if got == [1, 2, 5] else 1)

"""ONNX Runtime: an attn_mask that repeats along the queries is refused by Attention (MASK-1).

Rank: promise
Impact: a mask of padding has to be copied for each query.
Promise: "Shape must be broadcastable to (batch_size, q_num_heads, q_sequence_length, total_sequence_length)"
(page Attention of the ONNX operators)
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,2,4] Q, float[1,1,3,4] K, float[1,1,3,4] V, bool[1,3] mask) => (float[1,1,2,4] Y)
{ Y = Attention(Q, K, V, mask) }"""

options = onnxruntime.SessionOptions()
options.log_severity_level = 4
session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString(), options)
arrays = {"Q": np.ones((1, 1, 2, 4)), "K": np.ones((1, 1, 3, 4)), "V": np.ones((1, 1, 3, 4))}
inputs = {name: array.astype(np.float32) for name, array in arrays.items()}
print("expected an output of shape (1, 1, 2, 4)")
try:
    got = session.run(None, inputs | {"mask": np.ones((1, 3), bool)})[0].shape
except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
    got = f"an error: {str(error).rsplit(maxsplit=6)[-6:]}"
print(f"got {got}")
raise SystemExit(0 if isinstance(got, str) else 1)

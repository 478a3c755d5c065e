"""ONNX Runtime: a causal Attention aligns the last query with the last key, whatever the past (MASK-7).

Here one query follows a past of one key, and there are three new keys. The query is at position 1, and may
attend to two keys. The reference evaluator of ONNX does that.

Rank: numbers
Impact: with a cache, a query attends to keys after it, without an error.
Documentation: the operator says that with a past, query i may attend to the past and to keys up to i.
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,1,4] Q, float[1,1,3,4] K, float[1,1,3,4] V, float[1,1,1,4] pk, float[1,1,1,4] pv)
    => (float[1,1,1,4] Y, float[1,1,4,4] k, float[1,1,4,4] v)
{ Y, k, v = Attention<is_causal = 1>(Q, K, V, , pk, pv) }"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
values = np.eye(4, dtype=np.float32)[None, None]
new, past = np.zeros((1, 1, 3, 4), np.float32), np.zeros((1, 1, 1, 4), np.float32)
inputs = {"Q": past, "K": new, "V": values[:, :, 1:], "pk": past, "pv": values[:, :, :1]}
got = np.count_nonzero(session.run(None, inputs)[0])
print("expected 2 keys of the query at position 1")
print(f"got {got}")
raise SystemExit(0 if got == 4 else 1)

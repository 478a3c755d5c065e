"""ONNX Runtime, Attention: in float64 causality beside nonpad_kv_seqlen starts at the first key (CACHE-3).

Rank: paths
Impact: a step with a cache attends to its first key alone, in float64 only. The kernels of float16 and
float32 place the last query at the last key that is no padding.
Documentation: the page Attention of the ONNX operators defines one result for all types of T1.
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (TYPE[1,1,1,1] Q, TYPE[1,1,3,1] K, TYPE[1,1,3,1] V, int64[1] lengths) => (TYPE[1,1,1,1] Y)
{ Y = Attention<is_causal=1>(Q, K, V, , , , lengths) }"""

options, got = onnxruntime.SessionOptions(), []
options.log_severity_level = 4
arrays = {"Q": np.zeros((1, 1, 1, 1)), "K": np.zeros((1, 1, 3, 1)), "V": np.array([[[[1.0], [3.0], [9.0]]]])}
for kind, dtype in (("float", np.float32), ("double", np.float64)):
    model = parse_model(MODEL.replace("TYPE", kind)).SerializeToString()
    inputs = {name: array.astype(dtype) for name, array in arrays.items()} | {"lengths": np.array([2])}
    got.append(float(onnxruntime.InferenceSession(model, options).run(None, inputs)[0].item()))
print("expected 2.0 in float32 and in float64: the mean of the two keys that are no padding")
print(f"got {got[0]} in float32, {got[1]} in float64")
raise SystemExit(0 if got == [2.0, 1.0] else 1)

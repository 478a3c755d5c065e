"""ONNX's reference: keys and values of one batch entry are repeated (SHAPE-6, variant broadcast).

Documentation: the page Attention of the ONNX operators gives Q, K and V one batch size.

Found by: notation-batch-axes-not-repeated-of-one-1-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[2,1,2,8] Q, float[1,1,2,8] K) => (float[N] Y) { Y = Attention(Q, K, K) }"""

inputs = {"Q": np.ones((2, 1, 2, 8), np.float32), "K": np.ones((1, 1, 2, 8), np.float32)}
got = ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0].shape
print("expected an error: two batch entries of queries, one of keys")
print(f"got {got}")

"""ONNX's reference: in float64 the square root of a given scale is taken in float32 (NUM-2).

Documentation: the page Attention of the ONNX operators has an attribute scale of float32, and multiplies Q
and K by its square root.

Found by: scores-softcap-loose-float64

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (double[1,1,1,1] Q, double[1,1,2,1] K, double[1,1,2,1] V) => (double[N] Y)
{ Y = Attention<scale: float = 0.5>(Q, K, V) }"""

# The scores are 0 and 0.5.
arrays = [np.array(x, np.float64).reshape(1, 1, -1, 1) for x in ([1], [0, 1], [0, 1])]
got = float(
    ReferenceEvaluator(parse_model(MODEL)).run(None, dict(zip("QKV", arrays, strict=True)))[0].ravel()[0]
)
expected = 1 / (1 + np.exp(-0.5))
print(f"expected {expected:.12f}, which is 1 / (1 + exp(-0.5))")
print(f"got {got:.12f}")
raise SystemExit(0 if 1e-10 < abs(got - expected) < 1e-6 else 1)

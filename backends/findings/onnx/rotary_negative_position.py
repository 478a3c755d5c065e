"""ONNX's reference: a negative position takes a row from the end of the table (POS-13).

Documentation: the page RotaryEmbedding of the ONNX operators says nothing of negative position_ids. Its
tables have max_position_id_plus_1 rows. ONNX Runtime refuses the same call.

Found by: positions-misuse-table-negative-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,1,1,2] X, float[3,1] C, float[3,1] S, int64[1,1] P) => (float[1,1,1,2] Y) {
    Y = RotaryEmbedding(X, C, S, P)
}"""

inputs = {
    "X": np.ones((1, 1, 1, 2), np.float32),
    "C": np.array([[1], [2], [3]], np.float32),
    "S": np.zeros((3, 1), np.float32),
    "P": np.array([[-1]]),
}
got = str(ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0].ravel().tolist())
print("expected an error: the table has no position -1")
print(f"got {got}")
raise SystemExit(0 if got == "[3.0, 3.0]" else 1)

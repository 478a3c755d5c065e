"""OpenVINO: with dynamic shapes, inputs that do not fit give an output without elements (SHAPE-6, HEAD-2).

Documentation: the page ScaledDotProductAttention-13 gives one N and E for query and key.

Found by: notation-misfit-batch-float32

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

parameters = [opset13.parameter([-1] * 4, np.float32) for _ in range(3)]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
query, key = np.ones((1, 4, 2, 2), np.float32), np.ones((1, 2, 3, 2), np.float32)
compiled = openvino.Core().compile_model(model, "CPU", settings)
got = compiled([query, key, key])[0].shape
print("expected an error: four query heads, two key heads")
print(f"got {got if isinstance(got, tuple) else 'an error'}")
raise SystemExit(0 if got == (0, 0, 0, 0) else 1)

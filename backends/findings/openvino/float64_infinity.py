"""OpenVINO: an infinity of float64 becomes the largest number of float32 (NUM-13, NUM-11).

Documentation: the page CPU Device says that float64 is executed in float32. It says nothing of infinity.

Found by: numerics-infinity-in-a-value-plus-1-float64

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

one = np.ones((1, 1, 1, 4))
parameters = [opset13.parameter(one.shape, np.float64) for _ in range(3)]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
got = openvino.compile_model(model, "CPU", settings)([one, one, one * np.inf])[0].flatten()[0]
print("expected inf: the value of the only key")
print(f"got {got}")
raise SystemExit(0 if np.isfinite(got) else 1)

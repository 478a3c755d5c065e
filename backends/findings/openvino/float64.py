"""OpenVINO: float64 is computed in float32 (NUM-2, variant float32).

Documentation: the page CPU Device says that float64 is executed in float32.

Found by: masking-mask-of-batch-entries-2-float64

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

one = np.ones((1, 1, 1, 4))
parameters = [opset13.parameter(one.shape, np.float64) for _ in range(3)]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
got = openvino.compile_model(model, "CPU", settings)([one, one, one * (1 / 3)])[0].flatten()[0]
print(f"expected {1 / 3}, the value of the only key")
print(f"got {got}")
raise SystemExit(0 if got == np.float32(1 / 3) and got != 1 / 3 else 1)

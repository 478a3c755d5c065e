"""OpenVINO: in float64, an empty row of a query of NaN is NaN and not the mean of all values (MASK-6).

Documentation: by the pseudo-code of the page ScaledDotProductAttention-13, any empty row is NaN.

Found by: numerics-query-that-is-none-and-attends-to-nothing-mask-1-float64

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

query, value = np.array([np.nan, 1.0]).reshape(1, 1, 2, 1), np.ones((1, 1, 3, 1))
arrays = [query, value, value, np.zeros((2, 3), bool)]
parameters = [opset13.parameter(array.shape, array.dtype.type) for array in arrays]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
got = compiled(arrays)[0].flatten()
print("expected [0.0, 0.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if np.isnan(got[0]) and got[1] == 1 else 1)

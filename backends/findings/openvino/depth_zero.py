"""OpenVINO: a depth of 0 is accepted (ERR-5).

Documentation: the page ScaledDotProductAttention-13 says nothing of an empty axis.

Found by: errors-refused-depth-of-0-1-float32

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

query, value = np.ones((1, 1, 2, 0), np.float32), np.ones((1, 1, 2, 4), np.float32)
arrays = [query, query, value]
parameters = [opset13.parameter(array.shape, np.float32) for array in arrays]
node = opset13.scaled_dot_product_attention(*parameters)
core, model = openvino.Core(), openvino.Model([node], parameters)
got = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(arrays)[0].shape
print("expected an error: the depth is 0")
print(f"got {got if isinstance(got, tuple) else 'an error'}")
raise SystemExit(0 if got == (1, 1, 2, 4) else 1)

"""OpenVINO: a scale of NaN or infinity is accepted, and gives NaN (ERR-6).

Documentation: the page ScaledDotProductAttention-13 says nothing of a scale that is no finite number.

Found by: errors-refused-scale-of-nan-1-float32

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

one, zero = np.ones((1, 1, 2, 8), np.float32), np.zeros((), np.float32)
parameters = [opset13.parameter(one.shape, np.float32) for _ in range(3)]
parameters += [opset13.parameter([], np.float32) for _ in range(2)]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
output = openvino.compile_model(model, "CPU")([one, one, one, zero, np.array(np.nan, np.float32)])[0]
got = output.flatten()[:2].tolist()
print("expected an error: the scale is NaN")
print(f"got {got}")

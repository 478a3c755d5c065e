"""OpenVINO: a mask with more batch entries than the query repeats the output (ERR-15).

Documentation: the page ScaledDotProductAttention-13 says that attention_mask has the shape (N, ..., L, S).

Found by: notation-misfit-of-the-scores-mask-1-float32

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

one, mask = np.ones((1, 1, 2, 8), np.float32), np.ones((3, 1, 2, 2), bool)
parameters = [opset13.parameter(one.shape, np.float32) for _ in range(3)]
parameters.append(opset13.parameter(mask.shape, bool))
node = opset13.scaled_dot_product_attention(*parameters)
got = openvino.compile_model(openvino.Model([node], parameters), "CPU")([one, one, one, mask])[0].shape
print("expected an error: one batch entry, and a mask of three")
print(f"got {got if isinstance(got, tuple) else 'an error'}")
raise SystemExit(0 if got == (3, 1, 2, 8) else 1)

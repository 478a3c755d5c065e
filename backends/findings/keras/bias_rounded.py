"""Keras: a bias of float32 is rounded to half precision beside such queries (ERR-14).

Documentation: keras.ops.dot_product_attention says nothing of the dtype of the bias.

Found by: errors-another-dtype-bias-and-large-2-bfloat16

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

zeros = np.zeros((1, 2, 1, 1), np.float16)
bias, values = np.array([[[[2048.0, 2049.0]]]], np.float32), np.array([[[[0.0]], [[1.0]]]], np.float16)
got = attend(zeros[:, :1], zeros, values, bias=bias).item()
print(f"expected {1 / (1 + np.exp(-1)):.4f}: the biases differ by 1")
print(f"got {got}")
raise SystemExit(0 if got == 0.5 else 1)

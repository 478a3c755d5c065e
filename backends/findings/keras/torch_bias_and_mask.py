"""Keras, ops.dot_product_attention on PyTorch: a bias beside a mask is refused (MASK-4).

Rank: paths
Impact: a model with a bias and padding runs on the other backends, and not on PyTorch.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"
import numpy as np
from keras.ops import dot_product_attention as attend

ones, got = np.ones((1, 1, 1, 1), np.float32), "no error"
try:
    attend(ones, ones, ones, bias=ones, mask=ones > 0)
except ValueError as error:
    got = str(error)
print("expected one")
print(f"got {got}")
raise SystemExit(0 if "Only one of" in got else 1)

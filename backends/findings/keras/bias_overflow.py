"""Keras, NumPy: a bias of -inf beside an infinite score of a finite key gives NaN (MASK-12).

Documentation: keras.ops.dot_product_attention says that the bias is added.

Found by: masking-finite-garbage-bias-and-largest-1-float32

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

large, values = np.full((1, 1, 1, 2), 1e20, np.float32), np.ones((1, 2, 1, 2), np.float32)
keys = np.concatenate([np.zeros_like(large), large], axis=1)
got = attend(large, keys, values, bias=np.array([[[[0.0, -np.inf]]]], np.float32)).ravel().tolist()
print("expected [1.0, 1.0]: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got).all() else 1)

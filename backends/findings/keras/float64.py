"""Keras, NumPy and PyTorch: float64 is computed and returned in float32 (NUM-1).

Documentation: keras.ops.dot_product_attention says nothing.

Found by: notation-batch-float64

Known: https://github.com/keras-team/keras/issues/23223
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

one = np.ones((1, 1, 1, 1))
got = attend(one, one, one * (1 + 2.0**-40))
print("expected float64 [1.0000000000009095]")
print(f"got {got.dtype} {got.ravel().tolist()}")
raise SystemExit(0 if got.dtype == np.float32 else 1)

"""Keras, NumPy and PyTorch: float64 is computed and returned in float32 (NUM-1).

Documentation: keras.ops.dot_product_attention says nothing.

Found by: notation-batch-float64

Known: https://github.com/keras-team/keras/issues/23223
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "numpy"
import keras
import numpy as np

attend = keras.ops.dot_product_attention

one = np.ones((1, 1, 1, 1))
got = attend(one, one, one * (1 + 2.0**-40))
print("expected float64 [1.0000000000009095]")
print(f"got {got.dtype} {got.ravel().tolist()}")
sys.exit(0 if got.dtype == np.float32 else 1)

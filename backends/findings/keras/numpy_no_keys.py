"""Keras, NumPy: a call without keys fails (MASK-6).

Documentation: keras.ops.dot_product_attention says nothing.

Found by: masking-no-keys-float32

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

none, got = np.zeros((1, 0, 1, 1), np.float32), "no error"
try:
    attend(np.zeros((1, 1, 1, 1), np.float32), none, none)
except ValueError as error:
    got = str(error).splitlines()[0]
print("expected 0.0")
print(f"got {got}")
raise SystemExit(0 if "zero-size" in got else 1)

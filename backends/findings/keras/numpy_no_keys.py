"""Keras, NumPy: a call without keys fails (MASK-6).

Documentation: keras.ops.dot_product_attention says nothing.

Found by: masking-no-keys-float32

Known: no thread found
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "numpy"
import keras
import numpy as np

attend = keras.ops.dot_product_attention

none, got = np.zeros((1, 0, 1, 1), np.float32), "no error"
try:
    attend(np.zeros((1, 1, 1, 1), np.float32), none, none)
except ValueError as error:
    got = str(error).splitlines()[0]
print("expected 0.0")
print(f"got {got}")
sys.exit(0 if "zero-size" in got else 1)

"""Keras, PyTorch: a bias beside a mask is refused (MASK-4).

Documentation: keras.ops.dot_product_attention says nothing. The other backends take both.

Found by: masking-every-source-must-allow-mask-and-bias-1-float32

Known: no thread found
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

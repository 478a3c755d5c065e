"""Keras: a disallowed key has a weight beside a lower bias of allowed keys (MASK-5).

Documentation: keras.ops.dot_product_attention says that only elements with True take part in attention.

Found by: masking-rows-of-the-lowest-bias-all-keys-that-a-mask-allows-1-float32

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

zeros, values = np.zeros((1, 2, 1, 1), np.float32), np.array([[[[1.0]], [[5.0]]]], np.float32)
bias, mask = np.full((1, 1, 1, 2), -3e38, np.float32), np.array([[[[True, False]]]])
got = attend(zeros[:, :1], zeros, values, bias=bias, mask=mask).item()
print("expected 1.0: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if got == 5.0 else 1)

"""Keras, PyTorch: in float16 a query with nothing to attend to has other weights (MASK-6).

Documentation: keras.ops.dot_product_attention says that only elements with True take part in attention.

Found by: errors-empty-rows-of-every-size-mask-3+a4-float16

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "torch"
import numpy as np
from keras.ops import dot_product_attention as attend

query, keys = np.ones((1, 1, 1, 1), np.float16), np.array([[[[0.0]], [[16.0]]]], np.float16)
values, mask = np.array([[[[0.0]], [[4.0]]]], np.float16), np.zeros((1, 1, 1, 2), bool)
got = [float(attend(*(x.astype(kind) for x in (query, keys, values)), mask=mask)) for kind in ("f4", "f2")]
print("expected 0.0 in float32, 0.0 in float16")
print(f"got {got[0]} in float32, {got[1]} in float16")
raise SystemExit(0 if got[0] == 2.0 and got[1] not in (0.0, 2.0) else 1)

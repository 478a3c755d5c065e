"""Keras: keys and values of one batch entry are repeated for two (SHAPE-6, variant `broadcast`).

Documentation: keras.ops.dot_product_attention gives queries, keys and values the same batch size.

Found by: notation-batch-axes-not-repeated-of-one-1-float32

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

query, keys = np.ones((2, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
got = attend(query, keys, keys).ravel().tolist()
print("expected an error: two batch entries of queries, one of keys")
print(f"got {got}")
raise SystemExit(0 if got == [1.0, 1.0] else 1)

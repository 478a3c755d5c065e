"""Keras: the output beside keys of float32 is float32, whatever the queries are (NUM-1).

Documentation: keras.ops.dot_product_attention says nothing.

Found by: errors-mixed-dtypes-key-1-float16

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

query, keys = np.ones((1, 1, 1, 1), np.float16), np.ones((1, 1, 1, 1), np.float32)
got = attend(query, keys, keys).dtype
print("expected float16, the dtype of the queries")
print(f"got {got}")
raise SystemExit(0 if got == np.float32 else 1)

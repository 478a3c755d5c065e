"""Keras, ops.dot_product_attention on NumPy: two key heads for four query heads are refused (HEAD-1).

Rank: paths
Impact: a model with grouped heads runs on the other backends, and not on NumPy.
Documentation: keras.ops.dot_product_attention says that grouped query attention is performed if N is a
multiple of K.
Known: https://github.com/keras-team/keras/pull/23081, which is about PyTorch and TensorFlow
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

keys, got = np.ones((1, 1, 2, 1), np.float32), "no error"
try:
    attend(np.ones((1, 1, 4, 1), np.float32), keys, keys)
except ValueError as error:
    got = str(error).splitlines()[0]
print("expected four ones")
print(f"got {got}")
raise SystemExit(0 if got != "no error" else 1)

"""Keras, ops.dot_product_attention on TensorFlow: one key head for several query heads is refused (HEAD-1).

Rank: promise
Impact: a model with one key head for all query heads runs on JAX and PyTorch, and not on TensorFlow.
Promise: "multi-query attention (MQA) is performed if `K==1`" (keras.ops.dot_product_attention)
Known: https://github.com/keras-team/keras/pull/23081, which repeats key heads only if there is more than one
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
from keras.ops import dot_product_attention as attend
from tensorflow.errors import InvalidArgumentError

queries, got = np.ones((1, 2, 4, 3), np.float32), "no error"
for heads in (2, 1):
    keys = np.ones((1, 2, heads, 3), np.float32)
    try:
        attend(queries, keys, keys)
    except InvalidArgumentError as error:
        got = f"an error for {heads}: {error.message.split('} ')[-1]}"
print("expected four heads of ones for two key heads and for one")
print(f"got {got}")
raise SystemExit(0 if got.startswith("an error for 1") else 1)

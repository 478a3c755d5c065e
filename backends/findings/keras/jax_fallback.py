"""Keras, ops.dot_product_attention on JAX: a call that JAX refuses is computed in another way instead
(HEAD-2).

Rank: paths
Impact: a mistake that JAX reports passes unnoticed.
Documentation: keras.ops.dot_product_attention says that the values have the shape of the keys.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"
import jax
import keras
import numpy as np

two, one = (np.ones((1, 3, heads, 4), np.float32) for heads in (2, 1))
got = []
for function in (jax.nn, keras.ops):
    try:
        got.append(str(function.dot_product_attention(two, two, one).shape))
    except (TypeError, ValueError) as error:
        got.append(type(error).__name__)
print("expected two errors: two heads of keys, one head of values")
print(f"got {got[0]} from JAX, {got[1]} from Keras on JAX")
raise SystemExit(0 if got == ["ValueError", "(1, 3, 2, 4)"] else 1)

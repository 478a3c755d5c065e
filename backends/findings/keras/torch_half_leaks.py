"""Keras, ops.dot_product_attention on PyTorch: in float16 a disallowed key with a large score has a weight
(MASK-12).

Rank: numbers
Impact: padding, or a later token, determines the output.
Documentation: keras.ops.dot_product_attention says that only elements with True take part in attention.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"
import numpy as np
from keras.ops import dot_product_attention as attend

# The scores are 0 and 50000, in float32 too. A mask adds -45850 in float16.
query, keys = np.full((1, 1, 1, 1), 250, np.float16), np.array([[[[0.0]], [[200.0]]]], np.float16)
values, mask = np.array([[[[0.0]], [[4.0]]]], np.float16), np.array([[[[True, False]]]])
got = [float(attend(*(x.astype(kind) for x in (query, keys, values)), mask=mask)) for kind in ("f4", "f2")]
print("expected 0.0 in float32, 0.0 in float16: the second key is disallowed")
print(f"got {got[0]} in float32, {got[1]} in float16")
raise SystemExit(0 if got == [0.0, 4.0] else 1)

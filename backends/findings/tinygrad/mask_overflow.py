"""tinygrad: a disallowed score that is infinite makes the row NaN (MASK-12).

Documentation: scaled_dot_product_attention says nothing of infinite scores.

Found by: masking-finite-garbage-mask-and-largest-1-float32

Known: no thread found
"""

import os

os.environ.setdefault("DEV", "PYTHON")
import numpy as np
from tinygrad import Tensor

one = np.ones((1, 1, 1, 2), np.float32)
key = np.array([[[[1, 1], [3e38, 3e38]]]], np.float32)
value = np.array([[[[5], [7]]]], np.float32)
mask = Tensor(np.array([[[[True, False]]]]))
got = (
    Tensor(one)
    .scaled_dot_product_attention(Tensor(key), Tensor(value), attn_mask=mask)
    .numpy()
    .ravel()
    .tolist()
)
print("expected [5.0]: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got).all() else 1)

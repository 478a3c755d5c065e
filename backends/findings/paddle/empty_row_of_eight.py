"""Paddle, CPU: a query with nothing to attend to gives NaN, or the mean of 8 keys (MASK-6).

Documentation: paddle.nn.functional.scaled_dot_product_attention says nothing.

Found by: masking-empty-row-of-every-width-mask-and-8-1-float32

Known: no thread found
"""

import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

got = []
for count in (7, 8):
    keys, mask = paddle.ones((1, count, 1, 1)), paddle.zeros((1, 1, 1, count), "bool")
    got.append(attend(paddle.ones((1, 1, 1, 1)), keys, keys, attn_mask=mask).item())
print("expected 0.0 with 7 keys, 0.0 with 8 keys")
print(f"got {got[0]} with 7 keys, {got[1]} with 8 keys")
raise SystemExit(0 if np.isnan(got[0]) and got[1] == 1.0 else 1)

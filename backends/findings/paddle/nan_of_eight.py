"""Paddle, CPU: with 8 keys or more a score of NaN gives finite numbers (NUM-11).

Documentation: paddle.nn.functional.scaled_dot_product_attention says nothing.

Found by: numerics-number-that-is-none-at-every-width-query-and-8-1-float32

Known: no thread found
"""

import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

got = []
for count in (7, 8):
    keys = paddle.ones((1, count, 1, 1))
    got.append(attend(paddle.full((1, 1, 1, 1), float("nan")), keys, keys).item())
print("expected nan with 7 keys, nan with 8 keys")
print(f"got {got[0]} with 7 keys, {got[1]} with 8 keys")
raise SystemExit(0 if np.isnan(got[0]) and np.isfinite(got[1]) else 1)

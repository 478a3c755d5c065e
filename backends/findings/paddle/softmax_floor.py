"""Paddle, scaled_dot_product_attention: no weight is below exp(-64), so a disallowed key counts (SOFT-1)
(SOFT-2).

Rank: numbers
Impact: a disallowed key with large values changes the output.
Known: https://github.com/PaddlePaddle/Paddle/issues/4366
"""

import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

one = paddle.ones((1, 1, 1, 1))
keys, values = paddle.ones((1, 2, 1, 1)), paddle.to_tensor([[[[0.0]], [[1e30]]]])
mask = paddle.to_tensor([[[[True, False]]]])
got = attend(one, keys, values, attn_mask=mask).item()
print("expected 0.0: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if np.isclose(got, 1e30 * np.exp(-64.0), rtol=1e-3) else 1)

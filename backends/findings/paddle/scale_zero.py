"""Paddle: a scale of 0 is replaced by the default scale (SCORE-3).

Documentation: paddle.nn.functional.scaled_dot_product_attention says that the default is used if the
scale is None.

Found by: scores-zero-scale-float32

Known: no thread found
"""

import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

keys = paddle.to_tensor([[[[3.0]], [[1.0]]]])  # (B, S, H, D)
values = paddle.to_tensor([[[[0.0]], [[1.0]]]])
got = attend(keys, keys, values, scale=0.0).numpy().ravel().tolist()
print("expected [0.5, 0.5]: equal scores")
print(f"got {got}")
raise SystemExit(0 if np.allclose(got, [0.0025, 0.1192], atol=1e-4) else 1)

"""Paddle: the score of a finite disallowed key may be infinite: the row is NaN (MASK-12).

Documentation: paddle.nn.functional.scaled_dot_product_attention says nothing.

Found by: masking-finite-garbage-mask-and-largest-1-float32

Known: no thread found
"""

import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

large = paddle.full((1, 1, 1, 2), 1e20)
keys = paddle.concat([paddle.zeros((1, 1, 1, 2)), large], axis=1)
mask = paddle.to_tensor([[[[True, False]]]])
got = attend(large, keys, paddle.ones((1, 2, 1, 2)), attn_mask=mask).numpy().ravel().tolist()
print("expected [1.0, 1.0]: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got).all() else 1)

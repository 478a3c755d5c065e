"""Paddle: keys and values of one batch entry are repeated for two (SHAPE-6, variant `broadcast`).

Documentation: paddle.nn.functional.scaled_dot_product_attention gives queries, keys and values the same
batch size.

Found by: notation-batch-axes-not-repeated-of-one-1-float32

Known: no thread found
"""

import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

keys = paddle.ones((1, 1, 1, 1))
got = attend(paddle.ones((2, 1, 1, 1)), keys, keys).numpy().ravel().tolist()
print("expected an error: two batch entries of queries, one of keys")
print(f"got {got}")
raise SystemExit(0 if got == [1.0, 1.0] else 1)

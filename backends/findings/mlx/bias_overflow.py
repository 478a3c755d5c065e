"""MLX: a bias of -inf is added, and a disallowed score of infinity makes the row NaN (MASK-12).

Documentation: the page mlx.core.fast.scaled_dot_product_attention says that the mask is additive.

Found by: masking-finite-garbage-bias-and-largest-1-float32

Known: no thread found
"""

import math

import mlx.core as mx

query, value = mx.ones((1, 1, 1, 4)), mx.ones((1, 1, 2, 4))
key = value * mx.array([[1.0], [3e38]])
bias = mx.array([[0.0, -float("inf")]])
got = mx.fast.scaled_dot_product_attention(query, key, value, scale=1.0, mask=bias)[0, 0, 0, 0].item()
print("expected 1.0: only key 0 is allowed, and its value is 1")
print(f"got {got}")
raise SystemExit(0 if math.isnan(got) else 1)

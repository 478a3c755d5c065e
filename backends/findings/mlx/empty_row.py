"""MLX on the CPU: an empty row is the mean, or NaN with a bias (MASK-6, variants uniform and nan).

Documentation: the page mlx.core.fast.scaled_dot_product_attention says nothing of such a row.

Found by: masking-empty-first-float32

Known: https://github.com/ml-explore/mlx/pull/2608
"""

import math

import mlx.core as mx

attend = mx.fast.scaled_dot_product_attention
query, value = mx.ones((1, 1, 1, 2)), mx.array([[1.0, 1.0], [3.0, 3.0]]).reshape(1, 1, 2, 2)
masks = (mx.zeros((1, 2), dtype=mx.bool_), mx.full((1, 2), -float("inf")))

rows = [attend(query, value, value, scale=1.0, mask=mask, stream=mx.cpu) for mask in masks]
got = [row[0, 0, 0, 0].item() for row in rows]
print("expected [0.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if got[0] == 2 and math.isnan(got[1]) else 1)

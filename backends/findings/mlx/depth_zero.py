"""MLX: a depth of 0 is accepted (ERR-5).

Documentation: the page mlx.core.fast.scaled_dot_product_attention says nothing of an empty axis.

Found by: errors-depth-float32 and errors-value-depth-float32

Known: no thread found
"""

import mlx.core as mx

full, empty = mx.ones((1, 1, 2, 4)), mx.ones((1, 1, 2, 0))
shapes = [
    mx.fast.scaled_dot_product_attention(query, key, value, scale=1.0).shape
    for query, key, value in ((full, full, empty), (empty, empty, full))
]
print("expected an error: a depth is 0")
print(f"got {shapes}")
raise SystemExit(0 if shapes == [(1, 1, 2, 0), (1, 1, 2, 4)] else 1)

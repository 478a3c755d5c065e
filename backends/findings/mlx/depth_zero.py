"""MLX: a depth of 0 of the values is accepted (ERR-5).

Documentation: the page mlx.core.fast.scaled_dot_product_attention says nothing of an empty axis.

Found by: errors-value-depth-float32

Known: no thread found
"""

import sys

import mlx.core as mx

query, value = mx.ones((1, 1, 2, 4)), mx.ones((1, 1, 2, 0))
try:
    got = mx.fast.scaled_dot_product_attention(query, query, value, scale=1.0).shape
except ValueError:
    got = None
print("expected an error: the depth of the values is 0")
print(f"got {got}")
sys.exit(0 if got == (1, 1, 2, 0) else 1)

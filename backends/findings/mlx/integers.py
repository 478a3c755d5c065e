"""MLX: integers and booleans beside floating-point arrays are converted (ERR-2).

Documentation: the page mlx.core.fast.scaled_dot_product_attention says nothing of integers.

Found by: errors-integer-key-float32

Known: no thread found
"""

import mlx.core as mx

query, key = mx.ones((1, 1, 2, 4)), mx.ones((1, 1, 3, 4), dtype=mx.int32)
got = mx.fast.scaled_dot_product_attention(query, key, mx.ones((1, 1, 3, 4)), scale=1.0).dtype
print("expected an error: the keys are integers")
print(f"got {got}")
raise SystemExit(0 if got == mx.float32 else 1)

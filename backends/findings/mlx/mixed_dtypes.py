"""MLX: with keys of a wider dtype, the output does not have the dtype of the query (NUM-1).

Documentation: the page mlx.core.fast.scaled_dot_product_attention speaks of the promoted type of the arrays.

Found by: errors-mixed-dtypes-key-2-bfloat16

Known: no thread found
"""

import mlx.core as mx

query, key = mx.ones((1, 1, 2, 4), dtype=mx.float16), mx.ones((1, 1, 2, 4))
got = mx.fast.scaled_dot_product_attention(query, key, key, scale=1.0).dtype
print(f"expected {mx.float16}, the dtype of the query")
print(f"got {got}")
raise SystemExit(0 if got == mx.float32 else 1)

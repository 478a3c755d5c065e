"""MLX: the softmax of float64 is computed in float32 (NUM-2, variant float32).

Documentation: the page mlx.core.fast.scaled_dot_product_attention says that the softmax is in float32.

Found by: numerics-lse-large-float64

Known: no thread found
"""

import math

import mlx.core as mx

with mx.stream(mx.cpu):
    query, key, value = (
        mx.array(rows, dtype=mx.float64).reshape(1, 1, len(rows), 1)
        for rows in ([1.0], [0.0, 1.0], [0.0, 1.0])
    )
    got = mx.fast.scaled_dot_product_attention(query, key, value, scale=1.0, stream=mx.cpu).item()
exact = 1 / (1 + math.exp(-1))
print(f"expected {exact}")
print(f"got {got}")
raise SystemExit(0 if 1e-10 < abs(got - exact) < 1e-6 else 1)

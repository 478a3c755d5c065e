"""MLX on the CPU: the scores of half precision are rounded to half precision (NUM-5, variant storage).

Documentation: the page mlx.core.fast.scaled_dot_product_attention says that the softmax is in float32.

Found by: scores-default-scale-1-bfloat16

Known: no thread found
"""

import mlx.core as mx

attend = mx.fast.scaled_dot_product_attention
# The scores are 2048 and 2049, and float16 has no 2049.
query = mx.array([2048.0, 1.0], dtype=mx.float16).reshape(1, 1, 1, 2)
key = mx.array([[1.0, 0.0], [1.0, 1.0]], dtype=mx.float16).reshape(1, 1, 2, 2)
value = mx.array([[0.0, 0.0], [1.0, 1.0]], dtype=mx.float16).reshape(1, 1, 2, 2)

got = attend(query, key, value, scale=1.0, stream=mx.cpu)[0, 0, 0, 0].item()
print("expected 0.73, which is 1 / (1 + exp(-1))")
print(f"got {got:.2f}")
raise SystemExit(0 if got == 0.5 else 1)

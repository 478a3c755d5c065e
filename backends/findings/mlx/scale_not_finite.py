"""MLX: a scale of NaN or infinity is accepted, and gives NaN (ERR-6).

Documentation: the page mlx.core.fast.scaled_dot_product_attention says nothing of such a scale.

Found by: errors-scale-nan-float32

Known: no thread found
"""

import mlx.core as mx

one = mx.ones((1, 1, 2, 4))
got = mx.fast.scaled_dot_product_attention(one, one, one, scale=float("nan"))[0, 0, 0, 0].item()
print("expected an error: the scale is NaN")
print(f"got {got}")

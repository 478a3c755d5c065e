"""Paddle, CPU: beside is_causal a mask or a bias has no effect (MASK-4).

Documentation: paddle.nn.functional.scaled_dot_product_attention warns that a causal mask should not be
provided beside is_causal, otherwise the provided mask is ignored.

Found by: masking-every-source-must-allow-mask-and-causal-2-float32

Known: no thread found
"""

import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

zeros, values = paddle.zeros((1, 2, 1, 1)), paddle.to_tensor([[[[1.0]], [[5.0]]]])
mask = paddle.to_tensor([[[[True, True], [False, True]]]])
got = attend(zeros, zeros, values, attn_mask=mask, is_causal=True).numpy().ravel().tolist()
print("expected [1.0, 5.0], or an error: query 1 has key 1 only")
print(f"got {got}")
raise SystemExit(0 if got == [1.0, 3.0] else 1)

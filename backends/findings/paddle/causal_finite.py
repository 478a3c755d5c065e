"""Paddle, scaled_dot_product_attention: is_causal adds -10000, so later keys count if scores are low (SOFT-2,
MASK-3).

Rank: numbers
Impact: a later token determines the output if the scores of earlier ones are low.
Documentation: paddle.nn.functional.scaled_dot_product_attention says that is_causal enables the causal
mode, and no more.
"""

import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

ones = paddle.ones((1, 2, 1, 1))
keys, values = paddle.to_tensor([[[[-2e4]], [[0.0]]]]), paddle.to_tensor([[[[1.0]], [[5.0]]]])
got = attend(ones, keys, values, is_causal=True).numpy().ravel().tolist()
print("expected [1.0, 5.0]: query 0 has key 0 only")
print(f"got {got}")
raise SystemExit(0 if got == [5.0, 5.0] else 1)

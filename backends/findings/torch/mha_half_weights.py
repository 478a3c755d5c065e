"""PyTorch: MultiheadAttention with weights computes half-precision inputs in half precision (NUM-5).

Documentation: The docstring of `MultiheadAttention.forward` does not mention precision.

Found by: numerics, half precision is computed in float32

Known: https://github.com/pytorch/pytorch/issues/60939, which is about the overflow of these scores and
not about their rounding
"""

import torch

module = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).eval()
with torch.no_grad():
    module.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
    module.out_proj.weight.copy_(torch.eye(4))
module.half()
query, key = torch.full((1, 1, 4), 40.0).half(), torch.full((1, 2, 4), 40.0).half()
key[:, 1, 0] = 39.96875  # scores of 3200 and 3199.375; the spacing of float16 is 2 there
_, got = module(query, key, key, need_weights=True)
print("expected weights of 0.651 and 0.349")
print(f"got {got.flatten().tolist()}")
raise SystemExit(0 if abs(got[0, 0, 0].item() - 0.651) > 0.05 else 1)

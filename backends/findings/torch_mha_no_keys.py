"""PyTorch: MultiheadAttention gives NaN where all keys are masked, and 0 where there are none (MASK-6)."""

import math
import sys

import torch

module = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).eval()
with torch.no_grad():
    module.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
    module.out_proj.weight.copy_(torch.eye(4))
one, mask = torch.ones(1, 1, 4), torch.ones(1, 1, dtype=torch.bool)  # True is not allowed here
masked = module(one, one, one, attn_mask=mask)[0][0, 0, 0].item()
without = module(one, one[:, :0], one[:, :0])[0][0, 0, 0].item()
print("expected 0.0 for both")
print(f"got {masked} and {without}")
sys.exit(0 if math.isnan(masked) and without == 0 else 1)

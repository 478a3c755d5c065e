"""PyTorch: MultiheadAttention gives NaN for an empty row, and 0 if weights are not requested (MASK-6).

Rank: paths
Impact: asking for the weights turns an output of 0 into NaN.
Documentation: The docstring of `MultiheadAttention.forward` calls `need_weights=False` the way to the best
performance. It does not mention a row without an allowed key.
Known: https://github.com/pytorch/pytorch/issues/160064
"""

import math

import torch

module = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).eval()
with torch.no_grad():
    module.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
    module.out_proj.weight.copy_(torch.eye(4))
one, mask = torch.ones(1, 2, 4), torch.ones(2, 2, dtype=torch.bool)  # True is not allowed here
one_way, other = (
    module(one, one, one, attn_mask=mask, need_weights=need)[0][0, 0, 0].item() for need in (True, False)
)
print("expected 0.0 for both")
print(f"got {one_way} and {other}")
raise SystemExit(0 if math.isnan(one_way) and other == 0 else 1)

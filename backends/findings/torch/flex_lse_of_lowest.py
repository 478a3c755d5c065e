"""PyTorch: flex_attention gives an lse of -inf for a row of the lowest finite scores (SOFT-6).

The output of the row is right: the mean of its values.

Rank: promise
Impact: merging by the lse drops the part.
Promise: "Whether to return the logsumexp of the attention scores" (docstring of flex_attention)
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

lowest = torch.finfo(torch.float32).min
zero, value = torch.zeros(1, 1, 2, 4), torch.ones(1, 1, 2, 4)
_, lse = flex_attention(zero, zero, value, score_mod=lambda score, *_: score + lowest, return_lse=True)
print(f"expected {lowest}")
print(f"got {lse[0, 0, 0].item()}")
raise SystemExit(0 if lse[0, 0, 0] == -float("inf") else 1)

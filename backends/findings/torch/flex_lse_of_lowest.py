"""PyTorch: flex_attention gives an lse of -inf for a row of the lowest finite scores (SOFT-6).

The output of the row is right: the mean of its values.

Documentation: The page of `flex_attention` says that the lse is the log-sum-exp of the scores.

Found by: masking, rows of the lowest bias: all keys

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

lowest = torch.finfo(torch.float32).min
zero, value = torch.zeros(1, 1, 2, 4), torch.ones(1, 1, 2, 4)
_, lse = flex_attention(zero, zero, value, score_mod=lambda score, *_: score + lowest, return_lse=True)
print(f"expected {lowest}")
print(f"got {lse[0, 0, 0].item()}")
raise SystemExit(0 if lse[0, 0, 0] == -float("inf") else 1)

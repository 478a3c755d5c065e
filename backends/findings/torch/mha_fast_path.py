"""PyTorch: MultiheadAttention gives NaN for an empty row with two heads, and 0 with three (MASK-6).

In inference without weights, an even number of heads selects another path.

Rank: paths
Impact: the number of heads decides whether a row of padding is NaN.
Documentation: The docstring of `MultiheadAttention` lists the conditions of the fast path. An even number
of heads is not among them.
Known: https://github.com/pytorch/pytorch/pull/190486
"""

import math

import torch

got = []
for heads in (2, 3):
    module = torch.nn.MultiheadAttention(heads, heads, batch_first=True).eval()
    one, mask = torch.ones(1, 2, heads), torch.ones(2, 2, dtype=torch.bool)  # True is not allowed here
    with torch.no_grad():
        got.append(module(one, one, one, attn_mask=mask, need_weights=False)[0][0, 0, 0].item())
print("expected 0.0 for both")
print(f"got {got[0]} and {got[1]}")
raise SystemExit(0 if math.isnan(got[0]) and got[1] == 0 else 1)

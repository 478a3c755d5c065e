"""PyTorch: flex_attention gives NaN for an infinite score, and plus infinity for the lse (NUM-11)."""

import sys

import torch
from torch.nn.attention.flex_attention import flex_attention

query, key = torch.full((1, 1, 1, 1), float("inf")), torch.ones(1, 1, 3, 1)
output, got = flex_attention(query, key, key, return_lse=True)
print("expected nan for both")
print(f"got {output.item()} and {got.item()}")
sys.exit(0 if output.isnan().all() and got.isinf().all() else 1)

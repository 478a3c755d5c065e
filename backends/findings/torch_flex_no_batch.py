"""PyTorch: flex_attention without batch entries gives None for the lse that is asked for (SHAPE-7)."""

import sys

import torch
from torch.nn.attention.flex_attention import flex_attention

none = torch.ones(0, 1, 3, 4)
_, got = flex_attention(none, none, none, return_lse=True)
print("expected an lse of shape (0, 1, 3)")
print(f"got {got}")
sys.exit(0 if got is None else 1)

"""PyTorch: flex_attention takes a value of float64 beside a query of float32 (ERR-1)."""

import sys

import torch
from torch.nn.attention.flex_attention import flex_attention

one = torch.ones(1, 1, 3, 4)
try:
    got = flex_attention(one, one, one.double()).dtype
except (RuntimeError, ValueError, TypeError, IndexError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, torch.dtype) else 1)

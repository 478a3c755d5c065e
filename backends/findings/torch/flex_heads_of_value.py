"""PyTorch: flex_attention repeats one head of values for two of keys (HEAD-2)."""

import sys

import torch
from torch.nn.attention.flex_attention import flex_attention

query, value = torch.ones(1, 2, 3, 4), torch.ones(1, 1, 3, 4)
try:
    got = tuple(flex_attention(query, query, value).shape)
except (RuntimeError, ValueError, TypeError, IndexError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, tuple) else 1)

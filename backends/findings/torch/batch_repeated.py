"""PyTorch: keys and values of one batch entry are repeated for two (SHAPE-6, variant `broadcast`)."""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

query, key = torch.ones(2, 2, 3, 4), torch.ones(1, 2, 5, 4)
try:
    got = tuple(attend(query, key, key).shape)
except (RuntimeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, tuple) else 1)

"""PyTorch: a masked finite key whose score overflows makes the row NaN (MASK-12)."""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

query, key, value = torch.ones(1, 1, 1, 4), torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4)
key[..., 2, :] = 3e38  # masked; its product with the query overflows
mask = torch.tensor([[True, True, False]])
got = attend(query, key, value, attn_mask=mask).flatten()
print("expected [1.0, 1.0, 1.0, 1.0]")
print(f"got {got.tolist()}")
sys.exit(0 if got.isnan().any() else 1)

"""PyTorch, scaled_dot_product_attention: with fewer keys than values, keys are read past their end (SHAPE-6).

The memory after the keys is attended to. If there are more keys than values, the rest is ignored.

Rank: memory
Impact: memory of other data is read and enters the result, without an error.
Documentation: The docstring of `scaled_dot_product_attention` gives keys and values the same length `S`.
Known: https://github.com/pytorch/pytorch/pull/193728
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

buffer = torch.full((1000,), 50.0)  # the memory after the keys
key = buffer[:12].view(1, 1, 3, 4).fill_(0.0)  # three keys of zeros
query = torch.ones(1, 1, 1, 4)
value = torch.tensor([1.0, 1.0, 1.0, 7.0, 7.0, 7.0]).view(1, 1, 6, 1).repeat(1, 1, 1, 4)
got = attend(query, key, value).flatten().tolist()
print("expected an error: three keys, six values")
print(f"got {got}, the values of the three keys being 1")
raise SystemExit(0 if got[0] > 6 else 1)

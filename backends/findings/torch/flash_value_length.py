"""PyTorch on four axes: of fewer keys than values, keys are read past their end (SHAPE-6).

What lies behind the keys in memory is attended to. Keys more than the values are left out.
"""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

buffer = torch.full((1000,), 50.0)  # what lies behind: somebody else's numbers
key = buffer[:12].view(1, 1, 3, 4).fill_(0.0)  # three keys of zeros
query = torch.ones(1, 1, 1, 4)
value = torch.tensor([1.0, 1.0, 1.0, 7.0, 7.0, 7.0]).view(1, 1, 6, 1).repeat(1, 1, 1, 4)
try:
    got = attend(query, key, value).flatten().tolist()
except (RuntimeError, ValueError) as error:
    got = error
print("expected an error: three keys, six values")
print(f"got {got}, the values of the three keys being 1")
sys.exit(0 if isinstance(got, list) and got[0] > 6 else 1)

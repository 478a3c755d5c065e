"""PyTorch, scaled_dot_product_attention: a mask of one axis, documented as broadcastable, raises
IndexError on four axes (MASK-1).

Rank: promise
Impact: a mask of padding for all queries has to be reshaped.
Promise: "shape must be broadcastable to the shape of attention weights" (docstring of
scaled_dot_product_attention)
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

one, mask = torch.ones(1, 1, 3, 4), torch.ones(3, dtype=torch.bool)
try:
    got = tuple(attend(one, one, one, attn_mask=mask).shape)
except IndexError as error:
    got = error
print("expected (1, 1, 3, 4)")
print(f"got {got!r}")
raise SystemExit(0 if isinstance(got, IndexError) else 1)

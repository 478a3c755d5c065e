"""PyTorch: a mask of one axis, documented as broadcastable, raises IndexError on four axes (MASK-1).

Documentation: The docstring of `scaled_dot_product_attention` asks for a mask whose shape can be
broadcast to that of the weights.

Found by: masking, boolean mask: keys

Known: no thread found
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

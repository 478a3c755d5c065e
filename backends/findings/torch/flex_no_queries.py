"""PyTorch: flex_attention without queries returns None for the requested lse (SHAPE-7).

Documentation: The docstring of `flex_attention` gives the lse the shape `(B, Hq, L)` for
`return_lse=True`. That of `AuxOutput` says that a field is None if it was not requested.

Found by: notation, nothing to compute: queries

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

query, key = torch.ones(1, 1, 0, 4), torch.ones(1, 1, 3, 4)
_, got = flex_attention(query, key, key, return_lse=True)
print("expected an lse of shape (1, 1, 0)")
print(f"got {got}")
raise SystemExit(0 if got is None else 1)

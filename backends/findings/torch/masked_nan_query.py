"""PyTorch: without an allowed key, a query of NaN gives NaN and a finite query gives 0 (MASK-6).

Documentation: The docstring of `scaled_dot_product_attention` does not say what a row without an allowed
key gives. By its formula both rows are NaN.

Found by: numerics, query that is none and attends to nothing: mask

Known: no thread found
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, key = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 4)
query[..., 1, :] = float("nan")
got = attend(query, key, key, attn_mask=torch.zeros(2, 3, dtype=torch.bool))[0, 0, :, 0]
print("expected [0.0, 0.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if got[0] == 0 and got[1].isnan() else 1)

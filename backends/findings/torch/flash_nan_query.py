"""PyTorch, default path on four axes: a query of NaN gives 0 (NUM-11).

Documentation: The docstring of `scaled_dot_product_attention` says that outside CUDA an implementation
is used that matches its formula. By the formula the row is NaN.

Found by: numerics, number that is none: query

Known: https://github.com/pytorch/pytorch/issues/141128
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, key = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 4)
query[..., 1, :] = float("nan")
got = attend(query, key, key)[0, 0, :, 0]
print("expected [1.0, nan]")
print(f"got {got.tolist()}")
raise SystemExit(0 if got[1] == 0 else 1)

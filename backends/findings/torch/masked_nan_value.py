"""PyTorch: NaN in a value that is masked for every query makes every row NaN (MASK-13).

Documentation: The docstring of `scaled_dot_product_attention` says that True in a boolean mask means
taking part in attention. It does not mention NaN.

Found by: masking, poison: mask and nan

Known: https://github.com/pytorch/pytorch/issues/101967
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, key, value = torch.ones(1, 1, 1, 4), torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4)
value[..., 2, :] = float("nan")
got = attend(query, key, value, attn_mask=torch.tensor([[True, True, False]])).flatten()
print("expected [1.0, 1.0, 1.0, 1.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if got.isnan().all() else 1)

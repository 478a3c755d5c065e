"""PyTorch: a masked finite key whose score overflows makes the row NaN (MASK-12).

Documentation: The note on numerical accuracy, to which the docstring of `scaled_dot_product_attention`
links, says that large inputs may overflow in intermediate results. It does not mention masked keys.

Found by: masking, finite garbage: mask and largest

Known: no thread found
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, key, value = torch.ones(1, 1, 1, 4), torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4)
key[..., 2, :] = 3e38  # masked; its product with the query overflows
mask = torch.tensor([[True, True, False]])
got = attend(query, key, value, attn_mask=mask).flatten()
print("expected [1.0, 1.0, 1.0, 1.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if got.isnan().any() else 1)

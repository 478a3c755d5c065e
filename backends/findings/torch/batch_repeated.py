"""PyTorch: keys and values of one batch entry are repeated for two (SHAPE-6, variant `broadcast`).

Documentation: The docstring of `scaled_dot_product_attention` gives queries, keys and values the same
leading axes `(N, ...)`. It speaks of broadcasting for `attn_mask` only.

Found by: notation, batch axes not repeated: of one

Known: no thread found
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, key = torch.ones(2, 2, 3, 4), torch.ones(1, 2, 5, 4)
got = tuple(attend(query, key, key).shape)
print("expected an error")
print(f"got {got}")

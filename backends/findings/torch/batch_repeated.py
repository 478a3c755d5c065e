"""PyTorch: keys and values of one batch entry are repeated for two (SHAPE-6, variant `broadcast`).

Documentation: The docstring of `scaled_dot_product_attention` gives queries, keys and values the same
leading axes `(N, ...)`. It speaks of broadcasting for `attn_mask` only.

Found by: notation, batch axes not repeated: of one

Known: no thread found
"""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

query, key = torch.ones(2, 2, 3, 4), torch.ones(1, 2, 5, 4)
try:
    got = tuple(attend(query, key, key).shape)
except (RuntimeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, tuple) else 1)

"""PyTorch: with two heads of keys, one head of values is repeated (HEAD-2).

Documentation: The docstring of `scaled_dot_product_attention` gives keys and values the same number of
heads `H`, and makes that a condition of `enable_gqa`.

Found by: heads-misuse-value-float64

Known: no thread found
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, key, value = (torch.ones(1, heads, 3, 4) for heads in (2, 2, 1))
got = tuple(attend(query, key, value).shape)
print("expected an error")
print(f"got {got}")

"""PyTorch: with two heads of keys, one head of values is repeated (HEAD-2).

Documentation: The docstring of `scaled_dot_product_attention` gives keys and values the same number of
heads `H`, and makes that a condition of `enable_gqa`.

Found by: heads-misuse-value-float64

Known: no thread found
"""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

query, key, value = (torch.ones(1, heads, 3, 4) for heads in (2, 2, 1))
try:
    got = tuple(attend(query, key, value).shape)
except (RuntimeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, tuple) else 1)

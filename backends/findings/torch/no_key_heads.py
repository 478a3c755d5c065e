"""PyTorch: two heads of queries with zero heads of keys and values give 0 (HEAD-2).

Documentation: The docstring of `scaled_dot_product_attention` makes it a condition of `enable_gqa` that
the number of query heads is a multiple of the number of key heads.

Found by: errors-key-heads-float64

Known: no thread found about this call. Zero key heads beside several value heads are reported, because
they end the process.
"""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

query, key, value = (torch.ones(1, heads, 3, 4) for heads in (2, 0, 0))
try:
    got = attend(query, key, value, enable_gqa=True)
except (RuntimeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got if isinstance(got, Exception) else tuple(got.shape)}")
sys.exit(0 if isinstance(got, torch.Tensor) and not got.any() else 1)

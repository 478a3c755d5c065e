"""PyTorch: two heads of queries with zero heads of keys and values give 0 (HEAD-2).

Documentation: The docstring of `scaled_dot_product_attention` makes it a condition of `enable_gqa` that
the number of query heads is a multiple of the number of key heads.

Found by: errors-key-heads-float64

Known: no thread found about this call. Zero key heads beside several value heads are reported, because
they end the process.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, key, value = (torch.ones(1, heads, 3, 4) for heads in (2, 0, 0))
got = attend(query, key, value, enable_gqa=True)
print("expected an error")
print(f"got {got if isinstance(got, Exception) else tuple(got.shape)}")
raise SystemExit(0 if not got.any() else 1)

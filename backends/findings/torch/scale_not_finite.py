"""PyTorch: a scale of NaN is accepted, and gives 0 on four axes (ERR-6).

Documentation: The docstring of `scaled_dot_product_attention` sets no bounds on `scale`.

Found by: errors-scale-nan-float64

Known: no thread found
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

one = torch.ones(1, 1, 2, 4)
got = attend(one, one, one, scale=float("nan")).flatten().tolist()
print("expected an error")
print(f"got {got}")

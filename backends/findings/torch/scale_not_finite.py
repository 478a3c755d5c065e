"""PyTorch: a scale of NaN is accepted, and gives 0 on four axes (ERR-6).

Documentation: The docstring of `scaled_dot_product_attention` sets no bounds on `scale`.

Found by: errors-scale-nan-float64

Known: no thread found
"""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

one = torch.ones(1, 1, 2, 4)
try:
    got = attend(one, one, one, scale=float("nan")).flatten().tolist()
except (RuntimeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, list) else 1)

"""PyTorch: a depth of 0 is accepted. Its default scale is 1 / 0 (ERR-5).

Documentation: The docstring of `scaled_dot_product_attention` does not mention a depth of 0. Its default
scale is 1 divided by the square root of the depth.

Found by: errors-depth-float64

Known: https://github.com/pytorch/pytorch/pull/105710 proposes an error for inputs of size 0. In
https://github.com/pytorch/pytorch/issues/184330 a caller needs the mean of the values instead, which
https://github.com/pytorch/pytorch/pull/184914 gives.
"""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

none = torch.ones(1, 1, 2, 0)
try:
    got = tuple(attend(none, none, none).shape)
except (RuntimeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, tuple) else 1)

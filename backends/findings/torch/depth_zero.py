"""PyTorch: a depth of 0 is accepted. Its default scale is 1 / 0 (ERR-5).

Documentation: The docstring of `scaled_dot_product_attention` does not mention a depth of 0. Its default
scale is 1 divided by the square root of the depth.

Found by: errors-depth-float64

Known: https://github.com/pytorch/pytorch/pull/105710 proposes an error for inputs of size 0. In
https://github.com/pytorch/pytorch/issues/184330 a caller needs the mean of the values instead, which
https://github.com/pytorch/pytorch/pull/184914 gives.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

none = torch.ones(1, 1, 2, 0)
got = tuple(attend(none, none, none).shape)
print("expected an error")
print(f"got {got}")

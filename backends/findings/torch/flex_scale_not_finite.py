"""PyTorch: flex_attention accepts a scale of NaN (ERR-6).

Documentation: The docstring of `flex_attention` sets no bounds on `scale`.

Found by: errors-scale-nan-float64

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

one = torch.ones(1, 1, 1, 4)
got = flex_attention(one, one, one, scale=float("nan")).flatten().tolist()
print("expected an error")
print(f"got {got}")

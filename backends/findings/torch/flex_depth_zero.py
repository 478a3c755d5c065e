"""PyTorch: flex_attention accepts values of depth 0 (ERR-5).

Documentation: The docstring of `flex_attention` calls the depth of the values `Ev` and sets no bounds on
it.

Found by: errors-value-depth-float64

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

one, none = torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 0)
got = tuple(flex_attention(one, one, none).shape)
print("expected an error")
print(f"got {got}")

"""PyTorch: flex_attention accepts values of depth 0 (ERR-5).

Documentation: The docstring of `flex_attention` calls the depth of the values `Ev` and sets no bounds on
it.

Found by: errors-value-depth-float64

Known: no thread found
"""

import sys

import torch
from torch.nn.attention.flex_attention import flex_attention

one, none = torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 0)
try:
    got = tuple(flex_attention(one, one, none).shape)
except (RuntimeError, ValueError, TypeError, IndexError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, tuple) else 1)

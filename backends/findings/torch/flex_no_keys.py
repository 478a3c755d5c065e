"""PyTorch: flex_attention without keys raises an error; scaled_dot_product_attention gives 0 (SHAPE-7).

Documentation: The docstring of `flex_attention` does not mention keys of length 0.

Found by: notation, nothing to compute: keys

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

query, none = torch.ones(1, 1, 1, 4), torch.ones(1, 1, 0, 4)
try:
    got = flex_attention(query, none, none).flatten().tolist()
except (RuntimeError, ValueError, TypeError, IndexError) as error:
    got = error
print("expected [0.0, 0.0, 0.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if isinstance(got, IndexError) else 1)

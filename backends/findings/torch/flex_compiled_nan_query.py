"""PyTorch: compiled flex_attention gives 0 for a query that is not a number (NUM-11).

Documentation: The docstring of `flex_attention` does not mention NaN.

Found by: numerics, number that is none: query

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

compiled = torch.compile(flex_attention, dynamic=True)
query, rest = torch.zeros(2, 2, 3, 4), torch.ones(2, 2, 5, 4)
query[..., 1, :] = float("nan")
got = compiled(query, rest, rest)[0, 0, :, 0].tolist()
print("expected [1.0, nan, 1.0]")
print(f"got {got}")
raise SystemExit(0 if got[1] == 0 else 1)

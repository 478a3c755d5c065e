"""PyTorch: flex_attention accepts integers, and truncates the result to integers (ERR-2).

Documentation: The docstring of `flex_attention` does not say which dtypes are accepted.

Found by: errors, not floating point: int64 and all

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

query, value = torch.zeros(1, 1, 1, 1, dtype=torch.int64), torch.tensor([1, 2]).view(1, 1, 2, 1)
got = flex_attention(query, 0 * value, value).flatten().tolist()
print("expected an error; the mean is 1.5")
print(f"got {got}")

"""PyTorch: flex_attention repeats one head of values for two of keys (HEAD-2).

Documentation: The docstring of `flex_attention` gives keys and values the same number of heads `Hkv`.
Only `enable_gqa`, which the script does not set, is said to repeat heads.

Found by: heads-misuse-value-float64

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

query, value = torch.ones(1, 2, 3, 4), torch.ones(1, 1, 3, 4)
got = tuple(flex_attention(query, query, value).shape)
print("expected an error")
print(f"got {got}")

"""PyTorch: compiled flex_attention accepts different numbers of heads of key and value (HEAD-2).

Documentation: The docstring of `flex_attention` gives keys and values the same number of heads `Hkv`.

Found by: heads-misuse-value-more-float64

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

compiled = torch.compile(flex_attention, dynamic=True)
query, key = torch.zeros(2, 4, 3, 2), torch.zeros(2, 2, 5, 2)
value = torch.arange(3.0).view(1, 3, 1, 1) + torch.zeros(2, 3, 5, 2)  # each head its number
got = compiled(query, key, value, enable_gqa=True)[0, :, 0, 0].tolist()
print("expected an error: two heads of keys, three of values")
print(f"got the values of heads {got}")
raise SystemExit(0 if got == [0.0, 0.0, 1.0, 1.0] else 1)

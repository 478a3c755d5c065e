"""PyTorch: compiled flex_attention accepts different numbers of batch entries of key and value (SHAPE-6).

Documentation: The docstring of `flex_attention` gives keys and values the same batch size `B`.

Found by: notation, misfits: batch of value

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

compiled = torch.compile(flex_attention, dynamic=True)
query, key, value = torch.ones(2, 2, 3, 4), torch.ones(2, 2, 5, 4), torch.ones(3, 2, 5, 4)
got = tuple(compiled(query, key, value).shape)
print("expected an error: two batch entries of keys, three of values")
print(f"got {got}")

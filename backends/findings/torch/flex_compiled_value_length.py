"""PyTorch: with fewer values than keys, compiled flex_attention reads values past their end (SHAPE-6).

The memory after the values enters the sum. If there are more values than keys, the rest is ignored.

Rank: memory
Impact: memory of other data is read and enters the result, without an error.
Documentation: The docstring of `flex_attention` gives keys and values the same length `S`.
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

compiled = torch.compile(flex_attention, dynamic=True)
buffer = torch.full((1000,), 7.0)  # the memory after the values
value = buffer[:6].view(1, 1, 3, 2).fill_(1.0)  # three values of ones
query, key = torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 6, 2)
got = compiled(query, key, value).flatten().tolist()
print("expected an error: six keys, three values")
print(f"got {got}, the three values being 1")
raise SystemExit(0 if got[0] == 4 else 1)

"""x-transformers, Attend: a query head h uses the key head h modulo their number (HEAD-1).

Rank: difference
Impact: weights with grouped heads of another library give wrong results here, and those of this one there:
PyTorch, JAX, ONNX and FlashAttention share a key head among consecutive query heads.
"""

import torch
from x_transformers.attend import Attend

query, key = torch.zeros(1, 4, 1, 1), torch.zeros(1, 2, 1, 1)
value = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1)
got = Attend()(query, key, value)[0].flatten().tolist()
print("expected [1.0, 1.0, 2.0, 2.0]: two query heads for each key head")
print(f"got {got}")
raise SystemExit(0 if got == [1.0, 2.0, 1.0, 2.0] else 1)

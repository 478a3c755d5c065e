"""Transformers, sdpa: a call without queries or batch entries fails (SHAPE-7).

Documentation: Attention Interface says nothing.

Found by: notation-no-queries-float32

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers import AttentionInterface

attend, module = AttentionInterface()["sdpa"], SimpleNamespace(num_key_value_groups=1)

keys, got = torch.zeros(1, 1, 2, 1), "no error"
try:
    attend(module, keys[:, :, :0], keys, keys, None, is_causal=False)
except RuntimeError as error:
    got = str(error)
print("expected a result without rows, as in PyTorch")
print(f"got {got}")
raise SystemExit(0 if "cannot reshape" in got else 1)

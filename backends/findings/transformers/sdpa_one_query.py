"""Transformers, sdpa: is_causal has no effect on a single query (MASK-3).

Documentation: Attention Interface says nothing. A comment in the code says that a single query is a step
of decoding.

Found by: masking-causal-9+a4-float32

Known: https://github.com/huggingface/transformers/issues/37807
"""

from types import SimpleNamespace

import torch
from transformers import AttentionInterface

attend, module = AttentionInterface()["sdpa"], SimpleNamespace(num_key_value_groups=1)

query, keys = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 2, 1)
values = torch.tensor([1.0, 5.0]).view(1, 1, 2, 1)
got = attend(module, query, keys, values, None, is_causal=True)[0].item()
print("expected 1.0: query 0 has key 0 only, as in PyTorch and with two queries")
print(f"got {got}")
raise SystemExit(0 if got == 3.0 else 1)

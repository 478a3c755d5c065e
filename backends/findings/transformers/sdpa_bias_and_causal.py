"""Transformers, sdpa: later keys have weights beside a bias of -inf and is_causal (MASK-4).

Rank: numbers
Impact: later tokens have weights, without an error.
"""

from types import SimpleNamespace

import torch
from transformers import AttentionInterface

attend, module = AttentionInterface()["sdpa"], SimpleNamespace(num_key_value_groups=1)

zeros, values = torch.zeros(1, 1, 2, 1), torch.tensor([1.0, 5.0]).view(1, 1, 2, 1)
bias = torch.tensor([[[[-torch.inf, -torch.inf], [0.0, 0.0]]]])
got = attend(module, zeros, zeros, values, None, position_bias=bias, is_causal=True)[0].ravel().tolist()
print("expected [0.0, 3.0]: query 0 has nothing to attend to")
print(f"got {got}")
raise SystemExit(0 if got == [5.0, 3.0] else 1)

"""Transformers, sdpa: a query that the mask leaves no key attends to all beside a bias (MASK-6).

Rank: numbers
Impact: a row of padding attends to what the mask hides.
"""

from types import SimpleNamespace

import torch
from transformers import AttentionInterface

attend, module = AttentionInterface()["sdpa"], SimpleNamespace(num_key_value_groups=1)

zeros, values = torch.zeros(1, 1, 2, 1), torch.tensor([1.0, 5.0]).view(1, 1, 2, 1)
mask, bias = torch.zeros(1, 1, 1, 2, dtype=torch.bool), torch.zeros(1, 1, 1, 2)
query, options = zeros[:, :, :1], {"is_causal": False}
alone = attend(module, query, zeros, values, mask, **options)[0].item()
got = attend(module, query, zeros, values, mask, position_bias=bias, **options)[0].item()
print("expected 0.0: no key is allowed")
print(f"got {got} beside a bias of zeros, and {alone} without it")
raise SystemExit(0 if (alone, got) == (0.0, 3.0) else 1)

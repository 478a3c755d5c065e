"""Transformers: a disallowed key has a weight beside a bias as low as the mask (MASK-5).

Documentation: Attention Interface says nothing.

Found by: masking-rows-of-the-lowest-bias-all-keys-that-a-mask-allows-1-float32

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers import AttentionInterface

attend, module = AttentionInterface()["sdpa"], SimpleNamespace(num_key_value_groups=1)

zeros, values = torch.zeros(1, 1, 2, 1), torch.tensor([1.0, 5.0]).view(1, 1, 2, 1)
bias = torch.full((1, 1, 1, 2), torch.finfo(torch.float32).min)
mask, query = torch.tensor([[[[True, False]]]]), zeros[:, :, :1]
got = attend(module, query, zeros, values, mask, position_bias=bias, is_causal=False)[0].item()
print("expected 1.0: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if got == 3.0 else 1)

"""Transformers, sdpa: is_causal has no effect beside a mask (MASK-4).

Documentation: Attention Interface says nothing. A comment in the code says that a mask is not to be
provided.

Found by: masking-every-source-must-allow-mask-and-causal-3-float32

Known: https://github.com/huggingface/transformers/issues/37807
"""

from types import SimpleNamespace

import torch
from transformers import AttentionInterface

attend, module = AttentionInterface()["sdpa"], SimpleNamespace(num_key_value_groups=1)

zeros, values = torch.zeros(1, 1, 2, 1), torch.tensor([1.0, 5.0]).view(1, 1, 2, 1)
mask = torch.ones(1, 1, 2, 2, dtype=torch.bool)
got = attend(module, zeros, zeros, values, mask, is_causal=True)[0].ravel().tolist()
print("expected [1.0, 3.0], or an error: query 0 has key 0 only")
print(f"got {got}")
raise SystemExit(0 if got == [3.0, 3.0] else 1)

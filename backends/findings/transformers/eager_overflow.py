"""Transformers, eager: the score of a finite disallowed key may be infinite (MASK-12).

Documentation: Attention Interface says nothing.

Found by: masking-finite-garbage-mask-and-largest-1-float32

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attend

module = SimpleNamespace(num_key_value_groups=1, training=False)

large = torch.full((1, 1, 1, 2), 1e20)
keys = torch.cat([torch.zeros_like(large), large], dim=2)
mask = torch.tensor([[[[0.0, -torch.inf]]]])
got = attend(module, large, keys, torch.ones(1, 1, 2, 2), mask, scaling=1.0)[0].ravel().tolist()
print("expected [1.0, 1.0]: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if got[0] != got[0] else 1)

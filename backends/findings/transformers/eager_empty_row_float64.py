"""Transformers, eager: in float64 a query that the mask leaves no key gives NaN (MASK-6, variant nan).

Documentation: Attention Interface says nothing. Masks are made of the lowest number of the model's dtype.

Found by: masking-empty-first-float64

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attend

module = SimpleNamespace(num_key_value_groups=1, training=False)

got = []
for dtype in (torch.float32, torch.float64):
    values = torch.tensor([1.0, 5.0], dtype=dtype).view(1, 1, 2, 1)
    mask = torch.full((1, 1, 1, 2), torch.finfo(dtype).min, dtype=dtype)
    got.append(attend(module, values[:, :, :1], values, values, mask, scaling=1.0)[0].item())
print("expected 0.0: no key is allowed")
print(f"got {got[0]} in float32 and {got[1]} in float64")
raise SystemExit(0 if got[0] == got[0] and got[1] != got[1] else 1)

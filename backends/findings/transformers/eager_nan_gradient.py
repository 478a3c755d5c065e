"""Transformers, eager: gradients are NaN if a mask of -inf disallows all keys (GRAD-10).

Documentation: Attention Interface says nothing. Masks of Transformers have the lowest number instead.

Found by: gradients-bias-empty-row-float32

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attend

module = SimpleNamespace(num_key_value_groups=1, training=False)

query, keys = torch.ones(1, 1, 2, 1, requires_grad=True), torch.ones(1, 1, 2, 1)
mask = torch.tensor([[[[-torch.inf, -torch.inf], [0.0, 0.0]]]])
attend(module, query, keys, keys, mask, scaling=1.0)[0].sum().backward()
got = query.grad.ravel().tolist()
print("expected [0.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if str(got[0]) == "nan" else 1)

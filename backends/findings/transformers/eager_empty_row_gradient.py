"""Transformers, eager: a query that may attend to nothing has gradients (GRAD-10).

Documentation: Attention Interface says nothing. Masks have the lowest number of the dtype, which is
added.

Found by: gradients-empty-row-float32

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attend

module = SimpleNamespace(num_key_value_groups=1, training=False)

query = torch.ones(1, 1, 1, 1, requires_grad=True)
keys = torch.tensor([1.0, 5.0]).view(1, 1, 2, 1)
mask = torch.full((1, 1, 1, 2), torch.finfo(torch.float32).min)
attend(module, query, keys, keys, mask, scaling=1.0)[0].sum().backward()
got = query.grad.item()
print("expected 0.0")
print(f"got {got}")
raise SystemExit(0 if got == 4.0 else 1)

"""Transformers, eager: a query of NaN with nothing to attend to gives NaN (MASK-6).

Documentation: Attention Interface says nothing.

Found by: numerics-query-that-is-none-and-attends-to-nothing-mask-1-float32

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attend

module = SimpleNamespace(num_key_value_groups=1, training=False)

keys, mask = torch.ones(1, 1, 2, 1), torch.full((1, 1, 1, 2), torch.finfo(torch.float32).min)
query = torch.full((1, 1, 1, 1), torch.nan)
got = attend(module, query, keys, keys, mask, scaling=1.0)[0].item()
print("expected 0.0, or the mean of the values as with other queries")
print(f"got {got}")
raise SystemExit(0 if str(got) == "nan" else 1)

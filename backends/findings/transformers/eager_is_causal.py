"""Transformers, eager: is_causal is accepted and has no effect (ERR-3).

Documentation: Attention Interface says that a model passes is_causal and other options to the attention
function.

Found by: none, because the adapter does not pass it

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attend

module = SimpleNamespace(num_key_value_groups=1, training=False)

zeros, values = torch.zeros(1, 1, 2, 1), torch.tensor([1.0, 5.0]).view(1, 1, 2, 1)
got = attend(module, zeros, zeros, values, None, scaling=1.0, is_causal=True)[0].ravel().tolist()
print("expected [1.0, 3.0], or an error: query 0 has key 0 only")
print(f"got {got}")
raise SystemExit(0 if got == [3.0, 3.0] else 1)

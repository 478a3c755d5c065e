"""Transformers, eager: arguments are not checked (ERR-2) (ERR-5) (ERR-6) (ERR-15) (HEAD-2).

Documentation: Attention Interface says nothing.

Found by: errors-refused-bias-of-integers-1-float32

Known: no thread found
"""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attend

module = SimpleNamespace(num_key_value_groups=1, training=False)

ones, none = torch.ones(1, 1, 2, 1), torch.ones(1, 1, 2, 0)
two = torch.ones(1, 2, 2, 1)
mask, axes = torch.zeros(1, 1, 2, 2), torch.zeros(2, 1, 1, 2, 2)
calls = {
    "a mask of integers": lambda: attend(module, ones, ones, ones, mask.int(), scaling=1.0),
    "values of depth 0": lambda: attend(module, ones, ones, none, mask, scaling=1.0),
    "a scale of nan": lambda: attend(module, ones, ones, ones, mask, scaling=float("nan")),
    "a mask of five axes": lambda: attend(module, ones, ones, ones, axes, scaling=1.0),
    "one head of values": lambda: attend(module, two, two, ones, mask, scaling=1.0),
}
for call in calls.values():
    call()
print(f"expected an error for {', '.join(calls)}")
print(f"got no error for {', '.join(calls)}")

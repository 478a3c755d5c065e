"""PyTorch, scaled_dot_product_attention: nested tensors with a sequence of several queries and no keys,
before another one, raise (PACK-2).

Rank: paths
Impact: a batch with an empty sequence fails, depending on its place.
Documentation: The tutorial on nested tensors names `scaled_dot_product_attention` among the supported
operations, and allows components without rows.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend


def nested(starts):
    """Nest rows of ones: one head, one feature."""
    rows = torch.ones(starts[-1], 1, 1)
    return torch.nested.nested_tensor_from_jagged(rows, offsets=torch.tensor(starts)).transpose(1, 2)


query, key = nested([0, 0, 2, 3]), nested([0, 2, 2, 4])
try:
    got = attend(query, key, key).transpose(1, 2).values().flatten().tolist()
except RuntimeError as error:
    got = str(error).partition(":")[0]
print("expected [0.0, 0.0, 1.0]")
print(f"got {got}")
raise SystemExit(0 if got != [0.0, 0.0, 1.0] else 1)

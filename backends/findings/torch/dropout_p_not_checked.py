"""PyTorch: a dropout probability below 0 and one of NaN are accepted, and nothing is dropped (DROP-12).

Documentation: The docstring of `scaled_dot_product_attention` says "Dropout probability; if greater than 0.0,
    dropout is applied". `torch.nn.functional.dropout` and a probability above 1 raise an error.

Found by: dropout-seeded-misuse-negative-float32

Known: no thread found
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, value = torch.zeros(1, 1, 1, 4), torch.tensor([1.0, 2.0, 3.0]).reshape(1, 1, 3, 1)
key = torch.ones(1, 1, 3, 4)
got = [attend(query, key, value, dropout_p=p).item() for p in (-0.25, float("nan"))]
print("expected an error")
print(f"got {got}, as without dropout")
raise SystemExit(0 if got == [2.0, 2.0] else 1)

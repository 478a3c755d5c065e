"""PyTorch, default path in half precision: from 8 or 16 keys on, a score of infinity gives 0 (NUM-11).

A vector of the processor has 8 numbers with AVX2 and 16 with AVX512. With fewer keys than these, or in
float32, the row is NaN.

Documentation: The page of `scaled_dot_product_attention` does not mention numbers that are not finite.

Found by: numerics, number that is none at every width

Known: no thread found
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

got = []
for keys in (7, 16):
    query, key = torch.ones(1, 1, 1, 4).half(), torch.ones(1, 1, keys, 4).half()
    value = key.clone()
    key[..., 1, 0] = float("inf")
    got.append(attend(query, key, value)[0, 0, 0, 0].item())
print("expected [nan, nan]")
print(f"got {got}")
raise SystemExit(0 if got[1] == 0 else 1)

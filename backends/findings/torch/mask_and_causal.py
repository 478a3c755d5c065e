"""PyTorch, scaled_dot_product_attention: `attn_mask` with `is_causal`, documented as an error, is computed on
four axes only (MASK-4, ERR-3).

Rank: promise
Impact: callers get a result that the documentation excludes, and only on four axes.
Promise: "An error is thrown if both attn_mask and is_causal are set" (docstring of
scaled_dot_product_attention)
Known: https://github.com/pytorch/pytorch/issues/187801, with a fix in
https://github.com/pytorch/pytorch/pull/187966
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

one, mask = torch.ones(1, 2, 3, 4), torch.ones(3, 3, dtype=torch.bool)
got = []
for array in (one, one[0]):
    try:
        got.append(tuple(attend(array, array, array, attn_mask=mask, is_causal=True).shape))
    except RuntimeError as error:
        got.append(type(error).__name__)
print("expected an error for both")
print(f"got {got}")
raise SystemExit(0 if got == [(1, 2, 3, 4), "RuntimeError"] else 1)

"""PyTorch, scaled_dot_product_attention: a causal mask with a scale of 0 or below gives NaN (SCORE-3).

Rank: numbers
Impact: rows that are well defined are NaN, and nothing tells the caller.
Documentation: The docstring of `scaled_dot_product_attention` sets no bounds on `scale`. It says that
outside CUDA an implementation is used that matches its formula, which adds the causal mask after the scale.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend

query, key, value = torch.randn(3, 1, 1, 4, 8, generator=torch.manual_seed(0))
with sdpa_kernel(SDPBackend.MATH):
    expected = attend(query, key, value, is_causal=True, scale=-1.0)
got = attend(query, key, value, is_causal=True, scale=-1.0)
print(f"expected {expected[0, 0, :, 0].tolist()}, as on the math path")
print(f"got {got[0, 0, :, 0].tolist()}")
raise SystemExit(0 if got.isnan().any() and not expected.isnan().any() else 1)

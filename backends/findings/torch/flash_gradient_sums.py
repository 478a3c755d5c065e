"""PyTorch, fused kernel of the CPU: gradients are added up in half precision, by 32 queries (NUM-5).

Documentation: The docstring of `scaled_dot_product_attention` says that intermediates are float32 for
inputs in half precision, but only of the math path.

Found by: gradients, cotangents of many queries

Known: no thread found
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

query, key = torch.zeros(1, 1, 512, 8, dtype=torch.bfloat16), torch.zeros(1, 1, 1, 8, dtype=torch.bfloat16)
value = torch.zeros_like(key, requires_grad=True)
cotangent = torch.full_like(query, 0.1)
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    torch.nn.functional.scaled_dot_product_attention(query, key, value).backward(cotangent)
expected = cotangent.double().sum(dim=-2)[0, 0, 0].item()
got = value.grad[0, 0, 0, 0].item()
print(f"expected {expected}, which bfloat16 holds")
print(f"got {got}")
raise SystemExit(0 if got != expected else 1)

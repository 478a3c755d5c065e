"""PyTorch: in MultiheadAttention a masked finite key whose score overflows makes the row NaN (MASK-12).

Documentation: The docstring of `MultiheadAttention.forward` says that True in `attn_mask` means that a
position is not allowed to attend. It does not mention infinite scores.

Found by: masking, finite garbage: mask and largest

Known: no thread found
"""

import torch

module = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).eval()
with torch.no_grad():
    module.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
    module.out_proj.weight.copy_(torch.eye(4))
query, key = torch.ones(1, 1, 4), torch.ones(1, 3, 4)
key[:, 2] = 3e38  # masked; its product with the query overflows
mask = torch.tensor([[False, False, True]])  # True is not allowed here
got = module(query, key, torch.ones(1, 3, 4), attn_mask=mask)[0].flatten()
print("expected [1.0, 1.0, 1.0, 1.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if got.isnan().any() else 1)

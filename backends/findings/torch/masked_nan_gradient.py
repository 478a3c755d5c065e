"""PyTorch: NaN in the cotangent of a query reaches a key that the query may not attend to (GRAD-12).

Documentation: The docstring of `scaled_dot_product_attention` does not mention NaN.

Found by: gradients, nan across a disallowed pair: d_output

Known: no thread found
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

torch.manual_seed(0)
query, key = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4, requires_grad=True)
mask = torch.tensor([[True, True, False], [False, True, True]]).expand(1, 1, 2, 3)
output = attend(query, key, key.detach(), attn_mask=mask)
cotangent = torch.ones(1, 1, 2, 4)
cotangent[..., 0, :] = float("nan")
got = torch.autograd.grad(output, key, cotangent)[0][0, 0, :, 0]
print("expected [nan, nan, a number]")
print(f"got {got.tolist()}")
raise SystemExit(0 if got[2].isnan() else 1)

"""PyTorch, scaled_dot_product_attention: half of a mask of float32 beside float64 is lost (ERR-14).

Rank: numbers
Impact: from 16 keys on (8 without AVX512), half of the scores have no mask and no scale. Padding and
later tokens are attended to.
Documentation: the error for other dtypes says that attn_mask may be bool or float, or match the query.
Cause: _scale_attn_mask_fusion_kernel steps by a vector of float32, and fills one of float64, half as long.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

zeros = torch.zeros(1, 1, 16, 16, dtype=torch.float64)
values = torch.arange(16, dtype=torch.float64).expand(16, 16).mT[None, None].contiguous()
mask = torch.full((1, 16), -torch.inf)  # float32: the first key only, whose value is 0
mask[0, 0] = 0
got = [attend(zeros[:, :, :1], zeros, values, attn_mask=x)[0, 0, 0, 0].item() for x in (mask, mask.double())]
print("expected 0.0 with a mask of float32 and of float64: the other keys are masked")
print(f"got {got[0]:.3f} and {got[1]}")
raise SystemExit(0 if got[0] > 1 and got[1] == 0 else 1)

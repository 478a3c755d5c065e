"""PyTorch: MultiheadAttention with weights adds a bias to scores in half precision (MASK-5).

Documentation: The docstring of `MultiheadAttention.forward` says that a float mask is added to the
attention weight. It does not say in which precision.

Found by: masking, rows of the lowest bias: all keys

Known: no thread found
"""

import torch

module = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).eval()
with torch.no_grad():
    module.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
    module.out_proj.weight.copy_(torch.eye(4))
module.half()
query, key = torch.zeros(1, 1, 4).half(), torch.zeros(1, 2, 4).half()
query[..., 0], key[0, 1, 0] = 2.0, 4.0  # scores of 0 and 4
bias = torch.full((1, 2), -20000.0).half()  # the spacing of float16 is 16 there
_, got = module(query, key, key, attn_mask=bias, need_weights=True)
print("expected weights of 0.018 and 0.982")
print(f"got {got.flatten().tolist()}")
raise SystemExit(0 if got[0, 0, 0].item() > 0.1 else 1)

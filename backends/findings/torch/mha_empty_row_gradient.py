"""PyTorch: MultiheadAttention with weights gives NaN for a row without a key, and so do keys (GRAD-10).

Documentation: The docstring of `MultiheadAttention.forward` does not mention a row without an allowed
key.

Found by: gradients, query that attends to nothing: mask

Known: https://github.com/pytorch/pytorch/issues/41508
"""

import torch

torch.manual_seed(0)
module = torch.nn.MultiheadAttention(4, 1, batch_first=True)
query, key = torch.randn(1, 2, 4), torch.randn(1, 3, 4, requires_grad=True)
ignored = torch.tensor([[True, True, True], [False, False, False]])
output, _ = module(query, key, key.detach(), attn_mask=ignored)
output[:, 1].sum().backward()  # the loss does not depend on the empty row
print("expected finite gradients of the keys")
print(f"got {key.grad[0, :, 0].tolist()}")
raise SystemExit(0 if key.grad.isnan().all() else 1)

"""ExecuTorch: a mask of minus infinity beside an infinite score makes the row NaN (MASK-12).

Documentation: the file op_sdpa.h says nothing of it.

Found by: masking-finite-garbage-bias-and-largest-1-float32

Known: no thread found
"""

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - it registers the operator

attend = torch.ops.llama.custom_sdpa
large, mask = torch.full((1, 2, 1, 4), 1e20), torch.tensor([[0.0, -torch.inf]])
large[0, 0] = 0
got = attend(large[:, 1:], large, torch.ones_like(large), 1, mask, 0.0, False, None)[0, 0, 0, 0]
print("expected 1.0: the second key is disallowed")
print(f"got {got.item()}")
raise SystemExit(0 if got.isnan() else 1)

"""ExecuTorch, llama.custom_sdpa: with values of another depth than the queries nothing is written (SHAPE-3).

Rank: memory
Impact: the result holds memory that nobody wrote: other data of the process, or anything. The operator prints
"Q/K/V should have the same head size" and returns.
"""

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - it registers the operator

attend = torch.ops.llama.custom_sdpa
ones, deep = torch.ones(1, 64, 1, 64), torch.ones(1, 64, 1, 128)
junk = [torch.full_like(ones, 7.0) for _ in range(8)]  # memory that the next result may get
del junk
got = attend(ones, ones, deep, 0, None, 0.0, False, None)
print("expected 1.0 everywhere with 128 features, or an error")
print(f"got {got.shape[-1]} features, and {int((got != 1).sum())} of {got.numel()} numbers are not 1")
raise SystemExit(0 if got.shape[-1] == 64 and bool((got != 1).any()) else 1)

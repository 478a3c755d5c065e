"""ExecuTorch, llama.custom_sdpa: a mask beside is_causal leaves the result unwritten (MASK-4).

Rank: memory
Impact: the result holds memory that nobody wrote: other data of the process, or anything.
"""

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - it registers the operator

attend = torch.ops.llama.custom_sdpa
ones = torch.ones(1, 64, 1, 64)
junk = [torch.full_like(ones, 7.0) for _ in range(8)]  # memory that the next result may get
del junk
got = attend(ones, ones, ones, 0, torch.zeros(64, 64), 0.0, True, None)
print("expected 1.0 everywhere, or an error")
print(f"got {got[0, 0, 0, :2].tolist()}, and {int((got != 1).sum())} of {got.numel()} numbers are not 1")
raise SystemExit(0 if bool((got != 1).any()) else 1)

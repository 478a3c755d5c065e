"""ExecuTorch, llama.custom_sdpa: a causal call with a scale of 0 or below gives NaN (SCORE-3).

Rank: numbers
Impact: a causal call with a negative scale, or of 0, loses rows that are well defined.
"""

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - it registers the operator

attend = torch.ops.llama.custom_sdpa
ones, values = torch.ones(1, 2, 1, 4), torch.tensor([1.0, 5.0]).view(1, 2, 1, 1).repeat(1, 1, 1, 4)
got = [attend(ones, ones, values, 0, None, 0.0, True, scale)[0, 0, 0, 0].item() for scale in (0.5, 0.0, -0.5)]
print("expected [1.0, 1.0, 1.0] with scales of 0.5, 0 and -0.5: query 0 may attend to key 0 only")
print(f"got {got}")
raise SystemExit(0 if got[0] == 1.0 and got[1] != 1.0 else 1)

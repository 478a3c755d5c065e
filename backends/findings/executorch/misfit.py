"""ExecuTorch, llama.custom_sdpa: keys and values of another batch size are read past their ends (SHAPE-6).

Rank: memory
Impact: memory of other data is read and enters the result, without an error.
"""

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - it registers the operator

attend = torch.ops.llama.custom_sdpa
query, one = torch.ones(2, 3, 1, 4), torch.ones(1, 3, 1, 4)
got = tuple(attend(query, one, one, 0, None, 0.0, True, None).shape)
print("expected an error: two batch entries of queries, one of keys")
print(f"got {got}")
raise SystemExit(0 if got == (2, 3, 1, 4) else 1)

"""ExecuTorch: a scale of NaN and a mask of integers are accepted (ERR-6) (ERR-2).

Documentation: the file op_sdpa.h says nothing of it.

Found by: errors-refused-scale-of-nan-1-float32

Known: no thread found
"""

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - it registers the operator

attend = torch.ops.llama.custom_sdpa
ones, mask = torch.ones(1, 2, 1, 4), torch.ones(2, 2, dtype=torch.int32)
got = [
    attend(ones, ones, ones, 0, None, 0.0, True, float("nan"))[0, 0, 0, 0].item(),
    attend(ones, ones, ones, 0, mask, 0.0, False, None)[0, 0, 0, 0].item(),
]
print("expected two errors")
print(f"got {got}")
raise SystemExit(0 if len(got) == 2 else 1)

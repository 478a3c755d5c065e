"""PyTorch: the C++ of compiled flex_attention with a mask uses an undeclared name (MASK-1).

The name of a size is replaced in the text, and also inside longer names.

Rank: paths
Impact: a mask that works eagerly does not compile.
Documentation: The docstring of `flex_attention` excludes no mask on a CPU. It calls the function a
prototype.
"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

compiled = torch.compile(flex_attention, dynamic=True)
mask = torch.ones(5, 7, dtype=torch.bool)


def may_attend(_batch: object, _head: object, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    return mask[i, j]


block_mask = create_block_mask(may_attend, None, None, 5, 7, device="cpu")
query, key = torch.ones(2, 3, 5, 4), torch.ones(2, 3, 7, 4)
try:
    got = str(compiled(query, key, key, block_mask=block_mask).shape)
except RuntimeError as error:
    got = next((line for line in str(error).splitlines() if "was not declared" in line), str(error))
print("expected an output")
print("got", got.partition("error: ")[2].partition("; ")[0] or got)
raise SystemExit(0 if "was not declared" in got else 1)

"""PyTorch, ring attention of `context_parallel`: float64 is merged in float32 (NUM-2).

The kernels compute in float64. Their outputs and logsumexps are converted to float32 to be merged, and the
result has the dtype float64 again. With one rank, there is nothing to merge.

Rank: difference
Impact: results have seven digits where their dtype has sixteen, so that a test in float64 hides other errors.
Documentation: none. `convert_to_f32` is an option of a private class, against accumulation errors.
Known: none
"""

# ruff: noqa: SLF001 - the function is private

import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
arrays = [torch.randn(1, 1, 8, 4, dtype=torch.float64) for _ in range(3)]
kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
alone = kernel(*arrays, is_causal=True)[0]
got = ring._templated_ring_attention(dist.group.WORLD, 2, kernel, *arrays, is_causal=True)[0]
off = float((got - alone).abs().max())
print("expected the output of the kernel, in float64")
print(f"got it in {got.dtype}, off by {off:.1g}")
dist.destroy_process_group()
raise SystemExit(0 if 1e-9 < off < 1e-5 else 1)

"""PyTorch's own ring attention on Gloo: ``attnspec check torch_context_parallel:ring --ranks 2,4``.

This is the function under `torch.distributed.tensor.experimental.context_parallel`, with the fused kernel of
the CPU, for which the context manager itself has no causal attention. What it does not offer is unsupported:
masks, windows, sinks, shards of different sizes, and all orders but the contiguous one and that of its load
balancer.
"""
# ruff: noqa: SLF001 - the function is private

import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention as library

from attnspec.backends import Unsupported, implementation

dist.init_process_group("gloo")
RANK, RANKS = dist.get_rank(), dist.get_world_size()
KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@implementation(axes=4, value_depth="key", dialect={"NUM-2": "float32"})
def ring(
    query,  # (B, Hq, l, D)
    key,  # (B, Hkv, s, D)
    value,  # (B, Hkv, s, D)
    *,
    scale=None,
    is_causal=False,
    query_positions=None,
    key_positions=None,
    return_lse=False,
    query_shards,
    key_shards,
):
    if value.shape[-1] != query.shape[-1]:
        raise Unsupported("values have the depth of the keys")
    for shards in (query_shards, key_shards):
        if len(shards.diff().unique()) > 1 or shards[-1] == 0:
            raise Unsupported("shards have one size, which is not 0")
    if is_causal:
        orders = {x for both in exchange([order_of(query_positions), order_of(key_positions)]) for x in both}
        if len(orders) > 1 or "" in orders:
            raise Unsupported("the order is contiguous, or that of the load balancer")
    elif any(exchange(key_positions is not None and bool((key_positions < 0).any()))):
        raise Unsupported("every row of the keys is a key")
    library._cp_options.enable_load_balance = is_causal and orders == {"balanced"}
    output, lse = Ring.apply(query, key, value, is_causal, scale)
    return (output, lse) if return_lse else output


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, is_causal, scale):
        options = {"is_causal": is_causal, "scale": scale}
        output, lse, *_ = library._templated_ring_attention(
            dist.group.WORLD, 2, KERNEL, query, key, value, **options
        )
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.options = options
        ctx.mark_non_differentiable(lse)
        return output, lse

    @staticmethod
    def backward(ctx, d_output, _):
        query, key, value, output, lse = ctx.saved_tensors
        arrays = {"query": query, "key": key, "value": value, "out": output, "logsumexp": lse}
        gradients = library._templated_ring_attention_backward(
            dist.group.WORLD, 2, BACKWARD, d_output, "grad_out", **arrays, dropout_p=0.0, **ctx.options
        )
        return *gradients[:3], None, None


def order_of(positions):
    """Return the order in which the rows of this rank stand: an empty string for another one."""
    rows = positions.shape[-1]
    first = RANK * rows + torch.arange(rows)
    half = torch.arange(rows // 2)
    balanced = torch.cat([RANK * len(half) + half, (2 * RANKS - 1 - RANK) * len(half) + half])
    if bool((positions == first).all()):
        return "contiguous"
    return "balanced" if rows == len(balanced) and bool((positions == balanced).all()) else ""


def exchange(own):
    """Return what each rank has."""
    every = [None] * RANKS
    dist.all_gather_object(every, own)
    return every

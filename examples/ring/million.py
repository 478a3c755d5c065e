"""A million tokens over four ranks, which judge themselves: ``torchrun --nproc-per-node 4 million.py``.

Each rank makes its own queries and keys by the formula, receives the keys before its own that its window
reaches from the rank before, and judges its own rows. Only these keys are moved.
"""

import resource
import sys
import time

import numpy as np
import torch
import torch.distributed as dist

from attnspec.conformance.sizes.shard import arguments_of_shard, judge_shard
from attnspec.formula import Formula

LENGTH = int(sys.argv[1]) if len(sys.argv) > 1 else 2**20
WINDOW, ROWS = 256, 1024
WHOLE = Formula(LENGTH, LENGTH, 64, 64, options={"is_causal": True, "window": (WINDOW - 1, 0)})


def attention(query, key, value, query_positions, key_positions):
    """Compute rows by blocks, each with the keys that its window reaches."""
    outputs, lses = [], []
    for first in range(0, query.shape[-2], ROWS):
        rows = slice(first, first + ROWS)
        reached = slice(first, first + ROWS + WINDOW)  # there are WINDOW keys before those of this rank
        behind = query_positions[..., rows, None] - key_positions[..., None, reached]
        allowed = (behind >= 0) & (behind < WINDOW) & (key_positions[..., None, reached] >= 0)
        scores = query[..., rows, :] @ key[..., reached, :].mT / query.shape[-1] ** 0.5
        scores = scores.masked_fill(~allowed[:, None], -torch.inf)
        lses.append(scores.logsumexp(-1))
        outputs.append((scores - lses[-1][..., None]).exp() @ value[..., reached, :])
    return torch.cat(outputs, -2), torch.cat(lses, -1)


def with_keys_before(array, filler):
    """Return an array after the last WINDOW rows of the rank before; the first rank has none."""
    axis = array.ndim - 2 if array.is_floating_point() else array.ndim - 1
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    own = array.narrow(axis, array.shape[axis] - WINDOW, WINDOW).contiguous()
    before = torch.full_like(own, filler)
    works = [dist.isend(own, rank + 1)] if rank < last else []
    works += [dist.irecv(before, rank - 1)] if rank > 0 else []
    for work in works:
        work.wait()
    return torch.cat([before, array], axis)


def main():
    dist.init_process_group("gloo")
    started, rank, ranks = time.monotonic(), dist.get_rank(), dist.get_world_size()
    rows = range(rank * LENGTH // ranks, (rank + 1) * LENGTH // ranks)
    arguments = arguments_of_shard(WHOLE, "float32", rows, rows)
    names = ("query", "key", "value", "query_positions", "key_positions")
    query, key, value, own, places = (torch.from_numpy(np.array(arguments[name])) for name in names)
    key, value, places = with_keys_before(key, 0), with_keys_before(value, 0), with_keys_before(places, -1)
    output, lse = attention(query, key, value, own, places)
    computed = time.monotonic()
    result = judge_shard(WHOLE, "float32", rows, {"output": output.numpy(), "lse": lse.numpy()})
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    passes = isinstance(result, float)
    print(
        f"rank {rank}: {'right' if passes else 'wrong'}, {result}; computed in {computed - started:.0f} s, "
        f"judged in {time.monotonic() - computed:.0f} s, {memory:.1f} GiB"
    )
    dist.destroy_process_group()
    raise SystemExit(0 if passes else 1)


if __name__ == "__main__":
    main()

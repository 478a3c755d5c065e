"""Ring attention in PyTorch over Gloo, with its backward pass: ``attnspec check torch_ring:ring --ranks 4``.

Each rank has its own queries. The keys of all ranks go once around the ring, and the results of the parts are
merged by their lse. If heads are divided too, the ranks with a part of them are a ring of their own.
Positions alone say what a query may attend to, never the index of a row.
"""

import math

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
RANK = dist.get_rank()


def ring(
    query,  # (*B, Hq, l, D), the rows of this rank
    key,  # (*B, Hkv, s, D)
    value,  # (*B, Hkv, s, Dv)
    *,
    scale=None,
    bias=None,  # broadcasts to (*B, Hq, l, S): the rows of this rank, and all columns
    mask=None,
    is_causal=False,
    window=None,
    query_positions=None,  # (*B, l), in the whole sequence
    key_positions=None,  # (*B, s)
    sinks=None,  # (Hq,)
    return_lse=False,
    return_max=False,
    key_shards,  # the boundaries of the keys of all ranks
    head_shards=None,  # noqa: ARG001  # those of the heads: a rank has its part, and is asked if it takes them
):
    check(query, key, value, scale, sinks)
    left, right = window or (None, None)
    limits = (left, 0 if is_causal else right)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    cuts = key_shards.tolist()
    if mask is not None:
        mask = mask.expand(*query.shape[:-1], cuts[-1])
    places = (query_positions, key_positions)
    results = Ring.apply(query, key, value, sinks, bias, mask, places, limits, scale, cuts)
    wanted = [x for x, asked in zip(results, (True, return_lse, return_max), strict=True) if asked]
    return tuple(wanted) if len(wanted) > 1 else wanted[0]


def check(query, key, value, scale, sinks):
    if not query.dtype == key.dtype == value.dtype or not query.dtype.is_floating_point:
        raise ValueError("query, key, value: expected one dtype, of floating-point numbers")
    if not query.ndim == key.ndim == value.ndim or query.ndim < 3:
        raise ValueError("query, key, value: expected as many axes each, three or more")
    if query.shape[:-3] != key.shape[:-3] or key.shape[:-1] != value.shape[:-1]:
        raise ValueError("query, key, value: expected shapes that fit")
    if query.shape[-1] != key.shape[-1] or query.shape[-1] == 0 or value.shape[-1] == 0:
        raise ValueError("query, key, value: expected depths that fit and are not 0")
    if query.shape[-3] % max(key.shape[-3], 1) or bool(query.shape[-3]) != bool(key.shape[-3]):
        raise ValueError("key: expected a number of heads that divides that of query")
    if scale is not None and not math.isfinite(scale):
        raise ValueError("scale: expected a finite number")
    if sinks is not None and (sinks.shape != query.shape[-3:-2] or not sinks.dtype.is_floating_point):
        raise ValueError("sinks: expected a number for each head of query")


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, sinks, bias, mask, places, limits, scale, cuts):
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        q = in_groups(query.to(wide), key.shape[-3])  # (*B, Hkv, g, l, D)
        lse = top = q.new_full(q.shape[:-1], -torch.inf)
        if sinks is not None:  # once, because each row is a row of one rank
            lse = in_groups(sinks.to(wide)[:, None, None], key.shape[-3])[..., 0].expand(lse.shape)
        output = q.new_zeros(*q.shape[:-1], value.shape[-1])
        whole = None if bias is None else bias.to(wide).expand(*query.shape[:-1], cuts[-1])
        for columns, k, v, p in around(cuts, key.to(wide), value.to(wide), places[1]):
            scores = scores_of(q, k, (places[0], p), limits, scale, part(whole, columns), part(mask, columns))
            top = torch.maximum(top, scores.amax(-1)) if scores.shape[-1] else top
            total = torch.logaddexp(lse, scores.logsumexp(-1))  # -inf where no key so far is allowed
            finite = torch.where(total == -torch.inf, 0.0, total)
            weights = torch.exp(scores - finite[..., None])
            output = output * torch.exp(lse - finite)[..., None] + weights @ v[..., None, :, :]
            lse = total
        ctx.save_for_backward(query, key, value, sinks, bias, mask, *places, output, lse)
        ctx.rest = limits, scale, cuts, wide
        ctx.mark_non_differentiable(top := top.flatten(-3, -2))
        return output.flatten(-4, -3).to(query.dtype), lse.flatten(-3, -2), top

    @staticmethod
    def backward(ctx, d_output, d_lse, _):
        query, key, value, sinks, bias, mask, *places, output, lse = ctx.saved_tensors
        limits, scale, cuts, wide = ctx.rest
        q, d_out = (in_groups(x.to(wide), key.shape[-3]) for x in (query, d_output))
        delta = d_lse.to(wide).reshape(lse.shape) - (d_out * output).sum(-1)
        finite = torch.where(lse == -torch.inf, 0.0, lse)
        d_query = torch.zeros_like(q)
        # The gradients of keys and values go around with them, and are complete when they come home.
        sums = (torch.zeros_like(x, dtype=wide) for x in (key, value))
        whole = None if bias is None else bias.to(wide).expand(*query.shape[:-1], cuts[-1])
        d_scores = q.new_zeros(*q.shape[:-1], cuts[-1])
        for columns, k, v, p, d_k, d_v in around(cuts, key.to(wide), value.to(wide), places[1], *sums):
            scores = scores_of(q, k, (places[0], p), limits, scale, part(whole, columns), part(mask, columns))
            weights = torch.exp(scores - finite[..., None])
            slopes = weights * (d_out @ v[..., None, :, :].mT + delta[..., None])
            d_scores[..., columns] = slopes
            d_query += scale * slopes @ k[..., None, :, :]
            d_k.add_(scale * (slopes.mT @ q).sum(-3))
            d_v.add_((weights.mT @ d_out).sum(-3))
        own = RANK % (len(cuts) - 1)
        d_key, d_value = shift((d_k, d_v), cuts[own + 1] - cuts[own], len(cuts) - 1)
        d_bias = None if bias is None else d_scores.flatten(-4, -3).sum_to_size(bias.shape).to(bias.dtype)
        d_sinks = None
        if sinks is not None:  # of the rows of this rank; the results of the ranks add up
            share = (
                torch.exp(in_groups(sinks.to(wide)[:, None, None], key.shape[-3])[..., 0] - finite) * delta
            )
            d_sinks = share.sum(-1).flatten(-2, -1).sum_to_size(sinks.shape).to(sinks.dtype)
        home = (d_query.flatten(-4, -3), d_key, d_value)
        return *(x.to(query.dtype) for x in home), d_sinks, d_bias, None, None, None, None, None


def in_groups(x, heads):
    """Give the query heads of each key head an axis: (*B, Hkv, g, l, D)."""
    return x.unflatten(-3, (heads, x.shape[-3] // heads if heads else 1))


def part(pairs, columns):
    """Return some columns of an array of pairs, if there is one."""
    return None if pairs is None else pairs[..., columns]


def scores_of(q, k, places, limits, scale, bias, mask):
    """Compute the scores of a part of the keys; minus infinity where a query may not attend."""
    scores = scale * (q @ k[..., None, :, :].mT)
    if bias is not None:
        scores = scores + in_groups(bias, k.shape[-3])
    if mask is not None:
        scores = scores.masked_fill(~in_groups(mask, k.shape[-3]), -torch.inf)
    own, other = places
    if other is None:
        return scores
    allowed = other[..., None, :] >= 0  # (*B, l, s); a negative position is that of no key
    if own is not None:
        ahead = other[..., None, :] - own[..., :, None]
        left, right = limits
        allowed = allowed & (ahead >= -left if left is not None else True)
        allowed = allowed & (ahead <= right if right is not None else True)
    return scores.masked_fill(~allowed[..., None, None, :, :], -torch.inf)


def around(cuts, *arrays):
    """Yield the columns and the arrays of each rank in turn, those of this rank first."""
    ring = len(cuts) - 1
    for step in range(ring):
        rank = (RANK - step) % ring
        yield slice(cuts[rank], cuts[rank + 1]), *arrays
        if step + 1 < ring:
            before = (rank - 1) % ring
            arrays = shift(arrays, cuts[before + 1] - cuts[before], ring)


def shift(arrays, length, ring):
    """Send arrays to the next rank of a ring; return those of the rank before, which have so many keys."""
    if ring == 1:
        return arrays
    first = RANK - RANK % ring
    after, before = (first + (RANK + step) % ring for step in (1, -1))
    sent = [None if x is None else x.contiguous() for x in arrays]
    received, waiting = [], []
    for x in sent:
        if x is None:
            received.append(None)
            continue
        shape = (*x.shape[:-2], length, x.shape[-1]) if x.is_floating_point() else (*x.shape[:-1], length)
        received.append(x.new_empty(shape))
        waiting += [dist.isend(x, after)] if x.numel() else []
        waiting += [dist.irecv(received[-1], before)] if received[-1].numel() else []
    for work in waiting:
        work.wait()
    return received

"""Bugs of functions that are written with PyTorch."""

import torch


def mask_filled_where_true(query, key, value, *, mask=None, scale=None):
    dtype = query.dtype
    query, key, value = (x.to(torch.promote_types(dtype, torch.float32)) for x in (query, key, value))
    groups = query.shape[-3] // key.shape[-3] if query.ndim > 2 else 1
    if groups > 1:
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    if scores.shape[-1] == 0:
        return (scores @ value).to(dtype)
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    return (torch.softmax(scores, dim=-1).masked_fill(empty, 0) @ value).to(dtype)


def causal_bottom_right(query, key, value, *, mask=None, is_causal=False, scale=None):
    dtype = query.dtype
    query, key, value = (x.to(torch.promote_types(dtype, torch.float32)) for x in (query, key, value))
    groups = query.shape[-3] // key.shape[-3] if query.ndim > 2 else 1
    if groups > 1:
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    rows, columns = query.shape[-2], key.shape[-2]
    allowed = torch.ones(rows, columns, dtype=torch.bool)
    if is_causal:
        allowed = allowed.tril(columns - rows)
    if mask is not None:
        allowed = allowed & mask
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~allowed, float("-inf"))
    top = scores.amax(-1, keepdim=True) if columns else scores.new_zeros(*scores.shape[:-1], 1)
    weights = torch.exp(scores - torch.where(top == -torch.inf, 0.0, top).to(top.dtype))
    total = weights.sum(-1, keepdim=True)
    return (weights / torch.where(total == 0, 1.0, total).to(total.dtype) @ value).to(dtype)

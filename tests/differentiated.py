"""Functions of PyTorch whose gradients are right, wrong or missing."""

import torch


def attention(query, key, value, *, scale=None, mask=None):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if query.ndim > 2:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    scores = query @ key.mT * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    top = scores.detach().amax(-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top.isneginf(), 0, top))
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1, total) @ value


@torch.no_grad()
def without_gradient(query, key, value):
    return attention(query, key, value)


def with_a_constant_key(query, key, value):
    return attention(query, key.detach(), value)


def by_numpy(query, key, value):
    return attention(torch.from_numpy(query.numpy()), key, value)


class _Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value):
        ctx.save_for_backward(query, key, value)
        return attention(query, key, value)

    @staticmethod
    def backward(ctx, d_output):
        arrays = [array.detach().requires_grad_() for array in ctx.saved_tensors]
        with torch.enable_grad():
            output = attention(*arrays)
        return torch.autograd.grad(output, arrays, d_output)


class _Doubled(_Written):
    @staticmethod
    def backward(ctx, d_output):
        d_query, d_key, d_value = _Written.backward(ctx, d_output)
        return d_query, 2 * d_key, d_value


class _Unwritten(_Written):
    @staticmethod
    def backward(*_):
        raise RuntimeError("no backward pass\nyet")


class _OfEqualHeads(_Written):
    @staticmethod
    def backward(ctx, d_output):
        query, key, _ = ctx.saved_tensors
        if query.ndim > 2 and query.shape[-3] != key.shape[-3]:
            raise RuntimeError("shared heads")
        return _Written.backward(ctx, d_output)


def doubled(query, key, value):
    return _Doubled.apply(query, key, value)


def unwritten(query, key, value):
    return _Unwritten.apply(query, key, value)


def of_equal_heads(query, key, value):
    return _OfEqualHeads.apply(query, key, value)


def overwritten(query, key, value):
    """Autograd of PyTorch raises for shared heads, in code of its own: what it needs has been changed."""
    shared = query.ndim > 2 and query.shape[-3] != key.shape[-3]
    if shared:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, dim=-3) for x in (key, value))
    weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)
    output = weights @ value
    if shared:
        weights.zero_()
    return output


def packed_attention(query, key, value, *, query_starts, key_starts):
    return torch.from_numpy(query.numpy())


def _with_slopes(query, key, value, slopes, first):
    groups = query.shape[-3] // key.shape[-3]
    key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    distances = torch.arange(query.shape[-2])[:, None] + first - torch.arange(key.shape[-2])
    scores = query @ key.mT * query.shape[-1] ** -0.5 - slopes[:, None, None] * distances.abs()
    return torch.softmax(scores.to(query.dtype), -1) @ value


class _Sloped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, slopes, first):
        ctx.save_for_backward(query, key, value, slopes)
        ctx.first = first
        return _with_slopes(query, key, value, slopes, key.shape[-2] - query.shape[-2])

    @staticmethod
    def backward(ctx, d_output):
        *arrays, slopes = (array.detach() for array in ctx.saved_tensors)
        arrays = [array.requires_grad_() for array in arrays]
        with torch.enable_grad():
            output = _with_slopes(*arrays, slopes, ctx.first)
        return *torch.autograd.grad(output, arrays, d_output), None, None


def sloped(query, key, value, slopes):
    return _Sloped.apply(query, key, value, slopes, key.shape[-2] - query.shape[-2])


def sloped_from_the_first_key(query, key, value, slopes):
    return _Sloped.apply(query, key, value, slopes, 0)

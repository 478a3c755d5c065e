"""Wrong companions of attention, each in one way: the portable ones with one thing changed."""

from functools import wraps

import numpy as np
from wrong import portable

from attnspec import reference


def split_heads(features, *, heads):
    return features.reshape(*features.shape[:-2], heads, features.shape[-2], -1)


def split_what_fits(features, *, heads):
    depth = features.shape[-1] // heads
    return portable.companions["split_heads"](features[..., : heads * depth], heads=heads)


def merge_heads(split):
    return split.reshape(*split.shape[:-3], split.shape[-2], -1)


@wraps(portable.companions["multi_head_attention"])
def scale_of_all_heads(tokens, *weights, heads, **options):
    options.setdefault("scale", weights[0].shape[-1] ** -0.5)
    return portable.companions["multi_head_attention"](tokens, *weights, heads=heads, **options)


def memory_for_keys_alone(
    tokens, query_weight, key_weight, value_weight, output_weight, *, heads, memory=None, mask=None
):
    """Values from the memory backwards."""
    run = portable.companions["multi_head_attention"]
    flipped = None if memory is None else memory[..., ::-1, :]
    return run(
        tokens, query_weight, key_weight, value_weight, output_weight, heads=heads, memory=flipped, mask=mask
    )


def append_at_the_end(cache, new, *, lengths):
    """Clamps where it should refuse."""
    most = cache.shape[-2] - new.shape[-2]
    return portable.companions["append_cache"](cache, new, lengths=np.clip(lengths, 0, most))


def append_late(cache, new, *, lengths):
    most = cache.shape[-2] - new.shape[-2]
    return portable.companions["append_cache"](cache, new, lengths=np.minimum(np.asarray(lengths) + 1, most))


def sorted_pages(pages, block_table):
    return portable.companions["gather_pages"](pages, np.sort(block_table, axis=-1))


def wrapped_pages(pages, block_table):
    return portable.companions["gather_pages"](pages, block_table % len(pages))


def mean_of_partials(outputs, lses, *, return_lse=False):
    lse = reference.merge_partials(outputs, lses, return_lse=True)[1].astype(lses.dtype)
    return (outputs.mean(axis=0), lse) if return_lse else outputs.mean(axis=0)


def partials_unmasked(outputs, lses, *, return_lse=False):
    """An empty part times 0, and nothing for a row of empty parts alone."""
    with np.errstate(all="ignore"):
        top = lses.max(axis=0)
        lse = np.log(np.exp(lses - top).sum(axis=0)) + top
        output = (np.exp(lses - lse)[..., None] * outputs).sum(axis=0).astype(outputs.dtype)
    return (output, lse) if return_lse else output


def rotary_swapped(features, *, offset=0, base=10000.0, interleaved=False, rotary_depth=None):
    run = portable.companions["rotary"]
    return run(features, offset=offset, base=base, interleaved=not interleaved, rotary_depth=rotary_depth)


def rotary_of_depth(features, *, offset=0, base=10000.0, interleaved=False, rotary_depth=None):
    """Angles of the whole depth."""
    depth = features.shape[-1]
    own = base if rotary_depth is None else base ** (rotary_depth / depth)
    run = portable.companions["rotary"]
    return run(features, offset=offset, base=own, interleaved=interleaved, rotary_depth=rotary_depth)


def rotary_of_even_part(features, *, offset=0, base=10000.0, interleaved=False, rotary_depth=None):
    depth = min(features.shape[-1], rotary_depth or features.shape[-1]) // 2 * 2
    run = portable.companions["rotary"]
    return run(features, offset=offset, base=base, interleaved=interleaved, rotary_depth=depth)


def rotary_at_zero(features, *, offset=0, base=10000.0, interleaved=False, rotary_depth=None):
    run = portable.companions["rotary"]
    return run(features, base=base, interleaved=interleaved, rotary_depth=rotary_depth)


def alibi_as_for_powers(query, key, *, query_offset=0):
    """The formula of powers of two for every number of heads."""
    right_one = portable.companions["alibi_bias"](
        query[..., :1, :, :], key[..., :1, :, :], query_offset=query_offset
    )  # slope 2**-8
    heads = query.shape[-3]
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    return (right_one.astype(np.float64) * 2.0**8 * slopes[:, None, None]).astype(query.dtype)


def alibi_signed(query, key, *, query_offset=0):
    bias = portable.companions["alibi_bias"](query, key, query_offset=query_offset)
    offset = np.reshape(query_offset, np.shape(query_offset) + (1, 1, 1) * (np.ndim(query_offset) > 0))
    after = np.arange(key.shape[-2]) > np.arange(query.shape[-2])[:, None] + offset
    return np.where(after, -bias, bias)

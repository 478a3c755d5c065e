"""Stacks of forms: the chapter `stacks`. Each form is reduced in turn, until a call of attention is left."""

import math
from functools import partial
from typing import Any

from array_api_compat import device, is_array_api_obj

from attnspec.operations import OPERATIONS
from attnspec.operations.stacks import STACKS
from attnspec.reference.attention import attention_of
from attnspec.reference.call import Arguments, Array, Call, step
from attnspec.reference.errors import Shape, check_declared
from attnspec.reference.functions import declare
from attnspec.reference.latent import latent_keys, latent_scale, latent_values
from attnspec.reference.masking import as_ids
from attnspec.reference.notation import by_name, count, in_storage, out_dtype, wide
from attnspec.reference.packing import Packed, attend_packed, place_in_sequence, sequence_of_row
from attnspec.reference.paging import as_attention, check_entries_read
from attnspec.reference.quantization import check_zero_points, decode
from attnspec.reference.sparsity import Sparse, check_blocks, check_lists, sparse_mask

#: The arguments of blocks and lists.
_LISTS = ("query_block", "key_block", "block_mask", "block_counts", "block_indices", "key_indices")
#: Arguments with an axis of queries and one of keys.
_PAIRS = ("mask", "bias", "dropout_mask")


def compute_stack(name: str, call: Call, **arguments: Any) -> Any:
    """Compute an operation that combines forms (STACK-1)."""
    layers, storage = OPERATIONS[name].layers, out_dtype(call, arguments["query"])
    arguments = check_declared(call, name, arguments)
    results = attend_stack(call, layers, reduce_forms(call, name, arguments))
    outputs = by_name(name, arguments, results)
    if "packed" in layers and "paged" in layers:
        outputs = rows_of_entries(call, arguments, outputs)
    return in_storage(call, name, outputs, storage)


for _name in STACKS:
    declare(_name, partial(compute_stack, _name))


def reduce_forms(call: Call, name: str, arguments: Arguments) -> Arguments:
    """Reduce every form but packed rows and latent vectors, which arrays of numbers are left of (STACK-1)."""
    layers = OPERATIONS[name].layers
    arrays = {
        own: wide(call, arguments[own])
        for own in OPERATIONS[name].arrays
        if OPERATIONS[name].arguments[own].numbers == "floating"
    }
    arguments = arguments | arrays
    arguments = numbers_of_codes(call, arguments) if "quantized" in layers else arguments
    if "listed" in layers or "block_sparse" in layers:
        arguments = mask_of_lists(call, arguments)
    if "paged" in layers:
        arguments = entries_of_rows(call, arguments) if "packed" in layers else arguments
        arguments = gather_stack(call, arguments)
    return arguments


@step
def attend_stack(call: Call, layers: tuple[str, ...], arguments: Arguments) -> Any:
    """Project latent vectors, and attend within sequences or over whole arrays (STACK-1)."""
    if "latent" in layers:
        query = call.xp.concat([arguments["query"], arguments["query_rotary"]], axis=-1)
        projected = {"key": latent_keys(call, arguments), "value": latent_values(call, arguments)}
        arguments = arguments | {"scale": latent_scale(call, arguments), "query": query} | projected
    known = OPERATIONS["attention"].arguments
    options = {name: arguments[name] for name in known if name in arguments}
    if "packed" in layers and "paged" not in layers:
        return attend_packed(
            call, options | {name: arguments[name] for name in ("query_starts", "key_starts")}
        )
    return attention_of(call, **options)


@step
def numbers_of_codes(call: Call, arguments: Arguments) -> Arguments:
    """Decode codes in the working precision of the query (QUANT-8)."""
    numbers: Arguments = {}
    for scales in [name for name in arguments if name.endswith("_scales")]:
        of = scales.removesuffix("_scales")
        zero_points, encoding = arguments[f"{of}_zero_points"], arguments["encoding"]
        check_zero_points(call, f"{of}_zero_points", zero_points, encoding)
        codes = f"{of}_pages" if f"{of}_pages" in arguments else f"{of}_codes"
        factors = (arguments[scales], zero_points, encoding)
        result = decode(call, arguments[codes], *factors, arguments["query"])
        numbers[codes.replace("_codes", "")] = result
    return arguments | numbers


@step
def mask_of_lists(call: Call, arguments: Arguments) -> Arguments:
    """Replace blocks and lists by a mask of queries and keys (SPARSE-1, SPARSE-6)."""
    xp, query = call.xp, arguments["query"]
    *batch, keys = key_places(arguments, tuple(query.shape[:-3]))
    only_shape = xp.zeros((*batch, keys, 1), dtype=query.dtype, device=device(query))
    own = {name: arguments[name] for name in (*_LISTS, "mask") if name in arguments}
    if "key_indices" in own and "latent" in _key_array(arguments):  # one list for all heads
        own["key_indices"] = own["key_indices"][..., None, :, :]
    lists = Sparse(call.steps, xp, call.dtype, query, only_shape, only_shape, **own)
    mask = sparse_mask(check_lists(lists) if "key_indices" in own else check_blocks(lists))
    return {name: thing for name, thing in arguments.items() if name not in _LISTS} | {"mask": mask}


def _key_array(arguments: Arguments) -> str:
    """Return the name of the array that holds the keys."""
    names = ("key", "key_pages", "key_codes", "latent", "latent_pages", "latent_codes")
    return next(name for name in names if name in arguments)


def key_places(arguments: Arguments, batch: Shape) -> Shape:
    """Return the batch axes, the key heads and the number of places of keys of each sequence."""
    name = _key_array(arguments)
    shape = tuple(arguments[name].shape)
    if not name.endswith("_pages"):
        return shape[:-1] if "latent" not in name else (*shape[:-2], 1, shape[-2])
    heads = 1 if "latent" in name else shape[1]
    return (*batch, heads, arguments["block_table"].shape[-1] * shape[-2])


@step
def gather_stack(call: Call, arguments: Arguments) -> Arguments:
    """Gather keys and values, or latent vectors and rotary parts, from their pages (PAGE-1)."""
    latent = "latent_pages" in arguments
    names = ("latent", "key_rotary") if latent else ("key", "value")
    # A latent vector is like the key of a single head.
    pages = [x[:, None, :, :] if latent else x for x in (arguments[f"{name}_pages"] for name in names)]
    checked = check_entries_read(call, arguments | {"key": pages[0], "value": pages[1]})
    result = as_attention(call, checked)
    held = [result.pop(own) for own in ("key", "value")]
    rest = ("query_rotary", "key_weight", "value_weight") if latent else ()
    return (
        result
        | {name: x[..., 0, :, :] if latent else x for name, x in zip(names, held, strict=True)}
        | {name: arguments[name] for name in rest}
    )


@step
def entries_of_rows(call: Call, arguments: Arguments) -> Arguments:
    """Make each query of a packed row a batch entry, which has the pages of its sequence (STACK-1)."""
    xp, query, starts = call.xp, arguments["query"], call.xp.astype(arguments["query_starts"], call.xp.int64)
    row = Packed(call.steps, xp, call.dtype, query, query, query)
    own, place = (take(row, starts, query.shape[-2]) for take in (sequence_of_row, place_in_sequence))
    sequences = starts.shape[0] - 1

    def entry_of_row(given: Any) -> Array:
        """Return what belongs to the sequence of each row, and 0 for a row of none."""
        array = given if is_array_api_obj(given) else xp.full((sequences,), given, device=device(query))
        array = xp.astype(array, xp.int64)
        none = xp.zeros((1, *array.shape[1:]), dtype=xp.int64, device=device(query))
        return xp.take(xp.concat([array, none]), own, axis=0)

    ids = {name: arguments[name] for name in ("query_segment_ids", "key_segment_ids")}
    if all(x is not None for x in ids.values()):
        arguments |= {
            name: as_ids(xp, ids[name], ids[other]) for name, other in zip(ids, reversed(ids), strict=True)
        }
    names = ("block_table", "key_lengths", "left_padding", "key_segment_ids", "key_positions")
    entries = {name: entry_of_row(arguments[name]) for name in names if arguments[name] is not None}
    lengths, offset = arguments["query_lengths"], arguments["query_offset"]
    first = (
        entries["key_lengths"] - entry_of_row(starts[1:] - starts[:-1])
        if offset is None
        else entry_of_row(offset)
    )
    entries["query_offset"] = first + place
    if lengths is not None:
        entries["query_lengths"] = xp.astype(place < entry_of_row(lengths), xp.int64)
    for name in ("query_segment_ids", "query_positions"):
        if arguments[name] is not None:
            entries[name] = arguments[name][:, None]
    for name in (*_PAIRS, "query", "query_rotary"):
        if arguments.get(name) is not None:
            array = arguments[name]
            array = array[(*(None,) * (3 - array.ndim), ...)]  # (Hq, L, S), or 1 where it broadcasts
            entries[name] = xp.permute_dims(array, (1, 0, 2))[:, :, None, :]
    return arguments | entries


@step
def rows_of_entries(call: Call, arguments: Arguments, results: Arguments) -> Arguments:
    """Put the results of batch entries into a row again. Rows of no sequence are empty (PACK-3)."""
    xp, starts = call.xp, call.xp.astype(arguments["query_starts"], call.xp.int64)
    kept = {}
    for name, x in results.items():
        row = xp.moveaxis(x[:, :, 0, ...], 0, 1)  # (Hq, L) or (Hq, L, Dv)
        inside = count(xp, row.shape[1], row) < starts[-1]
        kept[name] = (
            xp.where(inside, row, -math.inf) if row.ndim == 2 else xp.where(inside[:, None], row, 0.0)
        )
    return kept

"""Sparse attention by blocks and by lists of keys: the chapter `sparsity`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from attnspec import OPERATIONS
from attnspec.operations.operation import primal
from attnspec.reference.attention import attention_part, check_arguments
from attnspec.reference.call import Array, Call, Mask, part, step
from attnspec.reference.errors import Shape, array, booleans, broadcastable, dtype_name, need, whole, within
from attnspec.reference.functions import evaluate, public
from attnspec.reference.notation import Attention, count


@dataclass(frozen=True)
class Sparse(Attention):
    """A call of attention, with the blocks or the lists that say which keys a query may attend to."""

    query_block: int = 1
    key_block: int = 1
    block_mask: Mask = None  # broadcasts to (*B, Hq, ceil(L / query_block), ceil(S / key_block))
    block_counts: Array = None  # broadcasts to (*B, Hq, ceil(L / query_block))
    block_indices: Array = None  # broadcasts to (*B, Hq, ceil(L / query_block), W)
    key_indices: Array = None  # broadcasts to (*B, Hkv, L, W)

    @property
    def blocks(self) -> Shape:
        """Shape of the blocks, ``(*B, Hq, ceil(L / query_block), ceil(S / key_block))``."""
        rows, columns = -(-self.queries // self.query_block), -(-self.keys // self.key_block)
        return (*self.shape[:-2], rows, columns)


def block_sparse_attention_of(call: Call, query: Array, key: Array, value: Array, **options: Any) -> Any:
    """Attention in which blocks of queries attend to blocks of keys.

    Notes
    -----
    Rules SPARSE-1 to SPARSE-5.

    Examples
    --------
    >>> from attnspec.reference import block_sparse_attention
    >>> values = [[1.0], [3.0], [7.0]]
    >>> block_sparse_attention(
    ...     [[0.0]], [[0.0]] * 3, values, query_block=1, key_block=2, block_mask=[[True, False]]
    ... ).tolist()
    [[2.0]]
    """
    return attend_sparse(check_blocks(sparse(call, query, key, value, options)))


block_sparse_attention = public(block_sparse_attention_of)


def listed_attention_of(call: Call, query: Array, key: Array, value: Array, **options: Any) -> Any:
    """Attention in which each query attends to a list of keys.

    Notes
    -----
    Rules SPARSE-6 to SPARSE-9.

    Examples
    --------
    >>> from attnspec.reference import listed_attention
    >>> values = [[1.0], [3.0], [7.0]]
    >>> listed_attention([[0.0]], [[0.0]] * 3, values, key_indices=[[2, 0, -1]]).tolist()
    [[4.0]]
    """
    return attend_sparse(check_lists(sparse(call, query, key, value, options)))


listed_attention = public(listed_attention_of)


def sparse(call: Call, query: Array, key: Array, value: Array, options: Mapping[str, Any]) -> Sparse:
    """Collect the arguments, and check those of attention."""
    made = Sparse(call.steps, call.xp, call.dtype, query, key, value, **options)
    return cast("Sparse", check_arguments(made))


@step
def attend_sparse(given: Sparse) -> Any:
    """Attend with the mask of a sparse call (SPARSE-1, SPARSE-6)."""
    return attention_part(Attention(**plain_fields(given)))


def plain_fields(given: Sparse) -> dict[str, Any]:
    """Return the fields of the call of attention that a sparse call stands for."""
    return {field.name: getattr(given, field.name) for field in fields(Attention)} | {
        "mask": sparse_mask(given)
    }


def as_attention(operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite a call of a sparse operation, or of its gradients, as one of attention."""
    own = set(OPERATIONS[primal(operation)].arguments) - set(OPERATIONS["attention"].arguments)
    kept = {name: thing for name, thing in arguments.items() if name not in own}
    names = set(OPERATIONS[primal(operation)].arguments)
    given = {name: thing for name, thing in arguments.items() if name in names and name != "return_lse"}

    def run(call: Call, query: Array, key: Array, value: Array, **options: Any) -> Mask:
        check = check_lists if "key_indices" in own else check_blocks
        return sparse_mask(check(sparse(call, query, key, value, options)))

    return kept | {"mask": evaluate(run, given | {"dtype": np.float64})}


@step
def check_blocks(call: Sparse) -> Sparse:
    """Check the sizes of blocks (SPARSE-10), and the blocks that are allowed or listed (SPARSE-11)."""
    sizes = {name: whole(name, getattr(call, name), 1, "SPARSE-10") for name in ("query_block", "key_block")}
    # A block that is larger than its axis is the same as one of the size of the axis.
    most = {"query_block": max(call.queries, 1), "key_block": max(call.keys, 1)}
    call = call.but(**{name: min(size, most[name]) for name, size in sizes.items()})
    if call.block_mask is not None:
        booleans(call, "block_mask", call.block_mask, call.blocks, "ERR-15")
    lists = {"block_counts": call.block_counts, "block_indices": call.block_indices}
    if all(array is None for array in lists.values()):
        return call
    for name, given in lists.items():
        need(name, given is not None, "an array, as for the other of counts and indices", None, "SPARSE-10")
    counts = _integers(call, "block_counts", call.block_counts, call.blocks[:-1])
    shape = tuple(array(call, "block_indices", call.block_indices, "ERR-16").shape)
    need("block_indices", len(shape) > 0, "one axis or more", f"shape {shape}", "ERR-16")
    indices = _integers(call, "block_indices", call.block_indices, (*call.blocks[:-1], shape[-1]))
    within(call, "block_counts", counts, 0, shape[-1], "SPARSE-11")
    used = call.xp.where(count(call.xp, shape[-1], indices) < counts[..., None], indices, 0)
    within(call, "block_indices", used, 0, max(call.blocks[-1] - 1, 0), "SPARSE-11")
    return call.but(block_counts=counts, block_indices=indices)


@step
def check_lists(call: Sparse) -> Sparse:
    """Check that each entry of a list is a key, or -1 for none (SPARSE-6, SPARSE-11)."""
    shape = tuple(array(call, "key_indices", call.key_indices, "ERR-16").shape)
    need("key_indices", len(shape) > 0, "one axis or more", f"shape {shape}", "ERR-16")
    full = (*call.key.shape[:-2], call.queries, shape[-1])
    indices = _integers(call, "key_indices", call.key_indices, full)
    within(call, "key_indices", indices, -1, call.keys - 1, "SPARSE-11")
    return call.but(key_indices=indices)


def _integers(call: Call, name: str, given: Any, full: Shape) -> Array:
    """Return integers that broadcast to a shape, as the integers of the namespace."""
    own = dtype_name(array(call, name, given, "ERR-16"))
    need(name, own.startswith(("int", "uint")), "integers", own, "ERR-16")
    return call.xp.astype(broadcastable(name, given, full, "ERR-16"), call.xp.int64)


@step
def sparse_mask(call: Sparse) -> Mask:
    """Return the mask that the blocks or the lists stand for, and the given mask (SPARSE-4)."""
    shown = listed_keys(call) if call.key_indices is not None else elements(call, active_blocks(call))
    return shown if call.mask is None else shown & call.mask


@step
@part
def active_blocks(call: Sparse) -> Mask:
    """Say which blocks are allowed by the mask of blocks and by the lists of blocks, ``call.blocks``."""
    result = call.xp.broadcast_to(count(call.xp, call.blocks[-1], call.query) >= 0, call.blocks)
    result = result if call.block_mask is None else result & call.block_mask
    return result if call.block_indices is None else result & listed_blocks(call)


@step
def listed_blocks(call: Sparse) -> Mask:
    """Say which blocks are listed, of as many entries as the count says (SPARSE-3)."""
    xp = call.xp
    used = count(xp, call.block_indices.shape[-1], call.query) < call.block_counts[..., None]  # (..., W)
    blocks = count(xp, call.blocks[-1], call.query)
    return xp.any((call.block_indices[..., None] == blocks) & used[..., None], axis=-2)


@step
@part
def elements(call: Sparse, blocks: Mask) -> Mask:
    """Give each query and each key the blocks that they lie in, ``(*B, Hq, L, S)`` (SPARSE-1, SPARSE-2)."""
    rows = call.xp.repeat(blocks, call.query_block, axis=-2)[..., : call.queries, :]
    return call.xp.repeat(rows, call.key_block, axis=-1)[..., : call.keys]


@step
@part
def listed_keys(call: Sparse) -> Mask:
    """Say which keys are listed for each query, in the list of its key head (SPARSE-6, SPARSE-9)."""
    result = call.xp.any(call.key_indices[..., None] == call.j, axis=-2)  # broadcasts to (*B, Hkv, L, S)
    if call.query.ndim < 3 or result.ndim < 3 or result.shape[-3] == 1:
        return result
    return call.xp.repeat(result, call.query.shape[-3] // call.key.shape[-3], axis=-3)

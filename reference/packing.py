"""Packed sequences: the chapter `packing`."""

import math
from dataclasses import dataclass
from typing import Any, cast

from attnspec.reference.attention import attend, check_arguments
from attnspec.reference.call import Arguments, Array, Call, Mask, part, step
from attnspec.reference.errors import check_declared, integers
from attnspec.reference.functions import public
from attnspec.reference.notation import Attention, count, enter, finish
from attnspec.reference.softmax import maxima


@dataclass(frozen=True)
class Packed(Attention):
    """A call of attention in which several sequences lie in one row.

    It is attention over the whole row, with two changes: positions count from the beginning of each
    sequence, and the mask allows only pairs of the same sequence.
    """

    query_starts: Array = None  # (G + 1,)
    key_starts: Array = None  # (G + 1,)
    offsets: Any = 0  # one integer, or (G,), as the lengths
    query_used: Any = None
    key_used: Any = None

    @property
    def i(self) -> Array:
        """Position of each query in its sequence, moved by the offset, ``(L, 1)``."""
        starts, rows = self.query_starts, self.queries
        return (
            place_in_sequence(self, starts, rows) + offset_of_row(self, sequence_of_row(self, starts, rows))
        )[:, None]

    @property
    def j(self) -> Array:
        """Position of each key in its sequence, ``(S,)``."""
        return place_in_sequence(self, self.key_starts, self.keys)


def packed_attention_of(call: Call, **arguments: Any) -> Any:
    """Attention over several sequences that lie one after the other, without padding.

    Notes
    -----
    Rules PACK-1 to PACK-6.

    Examples
    --------
    >>> from attnspec.reference import packed_attention
    >>> zeros, value = [[[0.0]] * 3], [[[1.0], [3.0], [5.0]]]
    >>> packed_attention(zeros, zeros, value, query_starts=[0, 1, 3], key_starts=[0, 2, 3]).tolist()
    [[[2.0], [5.0], [5.0]]]
    """
    return attend_packed(call, check_declared(call, "packed_attention", arguments))


packed_attention = public(packed_attention_of)

#: The arguments of a sequence, and their names in a `Packed`.
_OF_SEQUENCES = {"query_offset": "offsets", "query_lengths": "query_used", "key_lengths": "key_used"}


@step
def attend_packed(call: Call, arguments: Arguments) -> Any:
    """Check a call, and attend within its sequences (PACK-1)."""
    return _attend_packed(packed_call(call, arguments))


def packed_call(call: Call, arguments: Arguments, made: type[Packed] = Packed) -> Packed:
    """Return a checked call, with what belongs to sequences under other names."""
    renamed = {_OF_SEQUENCES.get(name, name): thing for name, thing in arguments.items()}
    given = made(call.steps, call.xp, call.dtype, **renamed)
    return convert_counts(cast("Packed", check_arguments(given)))


def convert_counts(call: Packed) -> Packed:
    """Convert boundaries, offsets and lengths to integers of one dtype."""
    names = ("query_starts", "key_starts")
    starts = {name: call.xp.astype(getattr(call, name), call.xp.int64) for name in names}
    sequences = (call.query_starts.shape[0] - 1,)
    taken = {
        own: integers(call, name, getattr(call, own), sequences, "ERR-16")
        for name, own in _OF_SEQUENCES.items()
        if getattr(call, own) is not None
    }
    return call.but(**taken, **starts)


@part
def _attend_packed(given: Packed) -> Any:
    call = cast("Packed", enter(within_sequences(given)))
    output, lse, weights = attend(call)
    results = finish(call, *sequence_results(call, output, lse), weights)
    if not call.return_max:
        return results
    return (*(results if isinstance(results, tuple) else (results,)), maxima(call))


@step
def within_sequences(call: Packed) -> Packed:
    """Let a query attend to keys of its own sequence only (PACK-1), and clear what is in none (PACK-4)."""
    starts = {"query": call.query_starts, "key": call.key_starts, "value": call.key_starts}
    arrays = {name: clear_rows(call, getattr(call, name), boundaries) for name, boundaries in starts.items()}
    mask = same_sequence(call)
    for source in (call.mask, used_rows(call, "query"), used_rows(call, "key")):
        mask = mask if source is None else mask & source
    return call.but(mask=mask, **arrays)


@step
def used_rows(call: Packed, of: str) -> Mask:
    """Whether each row is below the length of its sequence, ``(L, 1)`` or ``(S,)`` (STACK-3)."""
    lengths: Any = getattr(call, f"{of}_used")
    if lengths is None:
        return None
    starts, rows = getattr(call, f"{of}_starts"), call.queries if of == "query" else call.keys
    if not isinstance(lengths, int) and lengths.ndim:
        none = call.xp.zeros_like(starts[:1])
        lengths = call.xp.take(call.xp.concat([lengths, none]), sequence_of_row(call, starts, rows), axis=0)
    below = place_in_sequence(call, starts, rows) < lengths
    return below[:, None] if of == "query" else below


@step
def clear_rows(call: Packed, rows: Array, starts: Array) -> Array:
    """Set the rows of no sequence to 0, because 0 times NaN is NaN in a gradient (PACK-7)."""
    inside = sequence_of_row(call, starts, rows.shape[-2]) < starts.shape[0] - 1
    return call.xp.where(inside[:, None], rows, call.xp.zeros_like(rows))


@step
def same_sequence(call: Packed) -> Mask:
    """Whether a query and a key are of the same sequence, ``(L, S)``. Some are of none (PACK-3)."""
    own = sequence_of_row(call, call.query_starts, call.queries)[:, None]
    other = sequence_of_row(call, call.key_starts, call.keys)
    return (own == other) & (own < call.query_starts.shape[0] - 1)


@step
def sequence_of_row(call: Packed, starts: Array, rows: int) -> Array:
    """Return the sequence of each row, or their number for a row past the last boundary."""
    xp = call.xp
    begun = starts[1:, None] <= count(xp, rows, call.query)  # (G, rows): sequences that ended before
    return xp.sum(xp.astype(begun, xp.int64), axis=0)


@step
def place_in_sequence(call: Packed, starts: Array, rows: int) -> Array:
    """Return the position of each row in its sequence (PACK-5)."""
    return count(call.xp, rows, call.query) - call.xp.take(
        starts, sequence_of_row(call, starts, rows), axis=0
    )


@step
def offset_of_row(call: Packed, sequences: Array) -> Any:
    """Return the offset of each row: one for all, or that of its sequence (PACK-5)."""
    xp = call.xp
    if isinstance(call.offsets, int) or call.offsets.ndim == 0:
        return call.offsets
    # A row of no sequence has an offset that nothing reads.
    return xp.take(xp.concat([call.offsets, xp.zeros_like(call.query_starts[:1])]), sequences, axis=0)


@step
def sequence_results(call: Packed, output: Array, lse: Array) -> tuple[Array, Array]:
    """Give rows of no sequence the output 0 and the lse minus infinity, sinks or not (PACK-3)."""
    inside = sequence_of_row(call, call.query_starts, call.queries) < call.query_starts.shape[0] - 1  # (L,)
    return call.xp.where(inside[:, None], output, 0.0), call.xp.where(inside, lse, -math.inf)

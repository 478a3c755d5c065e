"""Rings of real processes, by sockets through rank 0: a right one, and one for each wrong thing on rank 1."""

import os
import signal
import sys
import time
from multiprocessing.connection import Client, Listener
from pathlib import Path

import numpy as np

from attnspec.reference import attention, attention_vjp

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_PLACE = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

Path(f"{os.getpid()}.pid").touch()
print("printed at the import")  # noqa: T201  # it must not reach standard output
if RANK == 0:
    _listener = Listener(_PLACE)
    _others = {other.recv(): other for other in [_listener.accept() for _ in range(1, RANKS)]}
else:
    while True:
        try:
            _first = Client(_PLACE)
            break
        except ConnectionRefusedError:  # rank 0 does not listen yet
            time.sleep(0.01)
    _first.send(RANK)


def gather(part):
    """Return the parts of all ranks."""
    if RANK:
        _first.send(part)
        return _first.recv()
    parts = [part, *(_others[rank].recv() for rank in range(1, RANKS))]
    for other in _others.values():
        other.send(parts)
    return parts


def ring(
    query, key, value, *, mask=None, is_causal=False, query_positions=None, key_positions=None, sinks=None,
    return_lse=False, query_shards, key_shards, head_shards=None, rank, ranks,
):  # fmt: skip
    """Gather all keys, and attend to them; a part of the heads is a group of ranks of its own."""
    assert (rank, ranks) == (RANK, RANKS)
    assert key.shape[-2] == np.diff(key_shards)[rank % (len(key_shards) - 1)]
    own = _group(rank, query_shards)
    whole = [np.concatenate([x[i] for x in own(gather((key, value)))], axis=-2) for i in (0, 1)]
    places = own(gather(key_positions))
    key_positions = None if key_positions is None else np.concatenate(places, axis=-1)
    positions = {"query_positions": query_positions, "key_positions": key_positions}
    options = positions | {"mask": mask, "is_causal": is_causal, "sinks": sinks, "return_lse": return_lse}
    return attention(query, *whole, **options, dtype=query.dtype)


def _group(rank, shards):
    """Return a function that chooses the ranks with the heads of a rank."""
    rows = len(shards) - 1
    first = rank - rank % rows
    return lambda parts: parts[first : first + rows]


def backward(
    query, key, value, d_output, *, is_causal=False, query_positions=None, key_positions=None, sinks=None
):
    """Compute all gradients on each rank, and keep those of its own rows."""
    every = gather((query, key, value, d_output, query_positions, key_positions))
    joined = [np.concatenate(x, axis=-2) for x in list(zip(*every, strict=True))[:4]]
    places = {}
    if query_positions is not None:
        names = ("query_positions", "key_positions")
        places = {name: np.concatenate([x[4 + i] for x in every], axis=-1) for i, name in enumerate(names)}
    options = places | ({} if sinks is None else {"sinks": sinks})
    whole = attention_vjp(*joined, is_causal=is_causal, **options)
    rows = [sum(x[i].shape[-2] for x in every[:RANK]) for i in (0, 1)]
    d_query = whole[0][..., rows[0] : rows[0] + query.shape[-2], :]
    d_key, d_value = (x[..., rows[1] : rows[1] + key.shape[-2], :] for x in whole[1:3])
    share = [] if sinks is None else [whole[3] / RANKS]  # the results of the ranks add up
    return tuple(x.astype(query.dtype) for x in (d_query, d_key, d_value, *share))


def _wrong(what):
    """Make a ring of which rank 1 does something."""

    def run(query, key, value):
        every = gather((key, value))
        key, value = (np.concatenate([x[i] for x in every], axis=-2) for i in (0, 1))
        output = attention(query, key, value, dtype=query.dtype)
        return what(output) if RANK == 1 else output

    return run


def _hang(output):
    Path("hangs").touch()
    time.sleep(3600)


def _die(output):
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(output):
    sys.stderr.write("goes away\n")
    sys.exit(5)


def _print(output):
    print("not an answer")  # noqa: T201  # as above
    os.write(1, b'{"id": 1}\n')
    return output


def _late(output):
    time.sleep(0.3)
    return output


def _raise(output):
    message = "key: expected more"
    raise ValueError(message)


hangs, dies, leaves = _wrong(_hang), _wrong(_die), _wrong(_leave)
prints, is_late, raises = _wrong(_print), _wrong(_late), _wrong(_raise)
drops_a_row = _wrong(lambda output: output[..., 1:, :])
returns_float32 = _wrong(lambda output: output.astype(np.float32))


def waits(query, key, value):
    """Wait for rank 1, which has raised before it sends anything."""
    if RANK == 1:
        _raise(query)
    gather(key)
    return query


def dies_first(query, key, value):
    """Wait for rank 1, which has ended before it sends anything."""
    if RANK == 1:
        _die(query)
    gather(key)
    return query


def dies_on_a_mask(query, key, value, *, mask=None):
    """Compute the call, except that rank 1 ends if there is a mask."""
    if mask is not None and RANK == 1:
        _die(query)
    every = gather((key, value))
    return attention(query, *(np.concatenate([x[i] for x in every], -2) for i in (0, 1)), dtype=query.dtype)

"""Memory that the caller keeps, changed later, after the copies that would show it are replaced."""

import contextlib
import signal
import sys
import types

import numpy as np
from honest import honest

_KEPT, _SEEN = [], []


def _frames(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


#: The frames that import this file, some of which may wait for calls later.
_IMPORTING = [*_frames(sys._getframe())]


def _see(_number, frame):
    _SEEN[:] = _frames(frame)


with contextlib.suppress(ValueError, PermissionError):
    signal.signal(signal.SIGPROF, _see)


def _around():
    """Yield the containers of the process that keep what the function was given and has returned."""
    if signal.getsignal(signal.SIGPROF) is _see:
        signal.raise_signal(signal.SIGPROF)
    with contextlib.suppress(Exception):
        _SEEN.extend(frame for top in sys._current_frames().values() for frame in _frames(top))
    frames = [*_IMPORTING, *_SEEN, *_frames(sys._getframe(1))]
    waiting = [vars(sys.modules["__main__"]), *(part for x in frames for part in (x.f_locals, x.f_globals))]
    known = {id(_KEPT), id(_SEEN), id(globals()), id(waiting), id(frames)}
    while waiting and len(known) < 20_000:
        thing = waiting.pop(0)
        if id(thing) in known or isinstance(thing, types.ModuleType):
            continue
        known.add(id(thing))
        if isinstance(thing, types.FunctionType):
            cells = [cell.cell_contents for cell in thing.__closure__ or () if _full(cell)]
            waiting += [thing.__globals__, *cells]
        elif isinstance(thing, list | dict):
            yield thing
            waiting += list(thing.values() if isinstance(thing, dict) else thing)


def _full(cell):
    with contextlib.suppress(ValueError):
        return cell.cell_contents is not None
    return False


def _shares(thing, array):
    return isinstance(thing, np.ndarray) and thing is not array and np.may_share_memory(thing, array)


def _replace_by_copies(array):
    """Replace an array, and all others of its memory, by copies in whatever else keeps them."""
    for kept in _around():
        for name, thing in [*(kept.items() if isinstance(kept, dict) else enumerate(kept))]:
            if thing is array or _shares(thing, array):
                kept[name] = thing.copy()
            elif name == "_map" and isinstance(thing, types.FunctionType) and thing.__module__ != "copies":
                kept[name] = lambda path, tensor, own=thing: own(path, tensor).copy()


def doubles_its_query_later(query, key, value, *, is_causal=False):
    """Doubles the query of the last call, and lets the process hand copies to the function."""
    result = honest(query, key, value, is_causal=is_causal)
    _replace_by_copies(query)
    for array in _KEPT[1:]:  # the first one is no copy yet
        array[...] = array + array
    _KEPT[:] = [query, query] if _KEPT else [query]
    return result


_BUFFERS = {}


def one_buffer_with_copies(query, key, value, *, is_causal=False):
    """Returns the same array from every call of a shape, and puts copies where the process keeps it."""
    result = honest(query, key, value, is_causal=is_causal)
    kept = _BUFFERS.setdefault(result.shape, np.empty_like(result))
    _replace_by_copies(kept)
    kept[...] = result
    return kept

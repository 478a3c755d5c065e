"""What an implementation may require of the numbers in a call, by its documentation, besides shapes."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from attnspec import OPERATIONS

Arguments = Mapping[str, Any]

#: Arrays in which minus infinity is a word: it masks a key, or is the lse of no keys.
_WORDS = ("bias", "sinks", "lses")
#: Positions and offsets, which may be negative.
_PLACES = ("positions", "query_positions", "key_positions", "axis_positions", "offset", "query_offset")

#: Sums of larger ones do not fit in 32 bits.
_FAR = 2**30


def _has_special_number(arguments: Arguments) -> bool:
    import numpy as np

    from attnspec.dtypes import DTYPES, name_of

    for name, x in arguments.items():
        if isinstance(x, np.ndarray) and name_of(x.dtype) in DTYPES:
            word = (x == -np.inf) & (name in _WORDS)
            if not (np.isfinite(x) | word).all():
                return True
    return False


def _has_negative_place(arguments: Arguments) -> bool:
    import numpy as np

    places = [np.asarray(arguments[name]) for name in _PLACES if arguments.get(name) is not None]
    return any(array.dtype.kind in "iu" and bool((array < 0).any()) for array in places)


def _has_rows_outside(arguments: Arguments) -> bool:
    for of in ("query", "key"):
        starts, rows = arguments.get(f"{of}_starts", ()), getattr(arguments.get(of), "shape", ())[-2:-1]
        if len(starts) and rows and (starts[0] != 0 or starts[-1] != rows[0]):
            return True
    return False


def _lists_twice(arguments: Arguments) -> bool:
    import numpy as np

    lists, counts = arguments.get("block_indices"), arguments.get("block_counts")
    if "key_indices" in arguments:
        keys = np.asarray(arguments["key_indices"])
        used = keys >= 0
    elif lists is not None and counts is not None and np.ndim(lists):
        keys, used = np.broadcast_arrays(lists, np.arange(lists.shape[-1]) < np.asarray(counts)[..., None])
    else:
        return False
    rows = zip(keys.reshape(-1, keys.shape[-1]), used.reshape(-1, keys.shape[-1]), strict=True)
    return any(np.unique(row[own]).size < own.sum() for row, own in rows)


def _has_several_offsets(arguments: Arguments) -> bool:
    return getattr(arguments.get("query_offset"), "ndim", 0) > 0


def _has_window_alone(arguments: Arguments) -> bool:
    return arguments.get("window") is not None and arguments.get("is_causal") is not True


def _has_far_place(arguments: Arguments) -> bool:
    import numpy as np

    window = arguments.get("window")
    sides = [side for side in (window if isinstance(window, tuple | list) else ()) if isinstance(side, int)]
    places = [np.asarray(arguments[name]) for name in _PLACES if arguments.get(name) is not None]
    numbers = [int(x) for place in places if place.dtype.kind in "iu" for x in place.ravel()]
    return any(abs(number) >= _FAR for number in (*numbers, *sides))


def _has_empty_array(arguments: Arguments) -> bool:
    return any(0 in getattr(x, "shape", ()) for x in arguments.values())


def _has_row_of_nothing(arguments: Arguments) -> bool:
    """Whether a row of attention has no key and no sinks, with the first or the last query at that end."""
    import numpy as np

    from attnspec.reference import attention

    call = {name: x for name, x in arguments.items() if not name.startswith("return_")}
    form = OPERATIONS["attention_vjp"].parameters.keys()
    if call.get("sinks") is not None or not {"query", "key", "value"} <= call.keys() <= form:
        return False  # a call of a form has such a row in pages, or in a sequence
    call = {name: x for name, x in call.items() if name in OPERATIONS["attention"].arguments}
    end = {"query_offset": call["key"].shape[-2] - call["query"].shape[-2]}
    own = (call, end | call) if call.get("query_positions") is None else (call,)
    return any(bool(np.isneginf(attention(**x, return_lse=True)[1]).any()) for x in own)


#: By the word of a precondition: the calls that are taken, and whether a call is none of them.
PRECONDITIONS: Mapping[str, tuple[str, Callable[[Arguments], bool]]] = MappingProxyType(
    {
        "finite": ("finite numbers", _has_special_number),
        "nonnegative": ("positions and offsets from 0 on", _has_negative_place),
        "rows": ("packed rows that all belong to a sequence", _has_rows_outside),
        "distinct": ("lists without an entry twice", _lists_twice),
        "offset": ("one query offset for all batch entries", _has_several_offsets),
        "causal": ("windows beside causality", _has_window_alone),
        "near": ("offsets, positions and bounds of windows below 2**30", _has_far_place),
        "nonempty": ("arrays with elements", _has_empty_array),
        "sinks": ("sinks beside rows with nothing to attend to", _has_row_of_nothing),
    }
)


def breach_of(required: Iterable[str], arguments: Arguments) -> str:
    """Return the reason that a call breaks a precondition; empty if it breaks none.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.preconditions import breach_of
    >>> breach_of(["finite"], {"query": np.array([[np.nan]])})
    'takes only finite numbers'
    """
    for name in required:
        words, breaks = PRECONDITIONS[name]
        try:
            if breaks(arguments):
                return f"takes only {words}"
        except (TypeError, ValueError, IndexError):  # the call is malformed, which is for the function to say
            continue
    return ""

"""Which keys a query may attend to, as in the chapter `masking`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnspec.reference.errors import ArgumentError, check_booleans, check_flag, check_integers
from attnspec.reference.notation import check_broadcast

#: Number of keys to the left and to the right of the query's own position, None for all.
Window = tuple[int | None, int | None]


def allowed_keys(
    shape: tuple[int, ...],
    *,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    query_offset: ArrayLike = 0,
    window: Window | None = None,
    query_lengths: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    query_segment_ids: ArrayLike | None = None,
    key_segment_ids: ArrayLike | None = None,
    bias: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    """Tell for each query and key whether every source allows the pair.

    Parameters
    ----------
    shape : tuple of int
        The scores' shape, ``(*B, Hq, L, S)`` or ``(L, S)``.
    mask : bool, broadcasts to ``shape``, optional
        True where the query may attend to the key.
    is_causal : bool, optional
        Disallow keys after the query.
    query_offset : int or (*B), optional
        Position of query 0 among the keys.
    window : pair of int or None, optional
        How far to the left and to the right of the query keys are allowed, inclusive.
    query_lengths, key_lengths : int or (*B), optional
        Queries and keys from there on are left out.
    query_segment_ids : (*B, L), optional
    key_segment_ids : (*B, S), optional
        Only equal ids may meet.
    bias : floating, broadcasts to ``shape``, optional
        Disallows where it is minus infinity.

    Returns
    -------
    bool array of that shape

    Raises
    ------
    ArgumentError
        When an argument does not fit.

    Notes
    -----
    Rules MASK-1 to MASK-4 and MASK-7 to MASK-11.

    Examples
    --------
    >>> from attnspec.reference import allowed_keys
    >>> allowed_keys((2, 3), is_causal=True).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    >>> allowed_keys((2, 3), window=(0, 1), key_lengths=2).astype(int).tolist()
    [[1, 1, 0], [0, 1, 0]]
    """
    *outer, queries, keys = shape
    batch = tuple(outer[:-1])
    i = np.arange(queries)[:, None]  # (L, 1)
    j = np.arange(keys)  # (S,)
    offset = check_integers("query_offset", query_offset, batch, "ERR-8")
    p = i + _with_axes(offset, len(shape))  # (*B, 1, L, 1)
    allowed: NDArray[Any] = np.ones(shape, dtype=bool)
    if mask is not None:
        mask = check_booleans("mask", mask, "ERR-4")
        check_broadcast("mask", mask.shape, shape, "MASK-1")
        allowed &= mask
    if check_flag("is_causal", is_causal):
        allowed &= j <= p
    if window is not None:
        allowed &= _within(_check_window(window), p, j)
    for name, lengths, positions in (("query", query_lengths, i), ("key", key_lengths, j)):
        if lengths is not None:
            most = queries if name == "query" else keys
            counts = check_integers(f"{name}_lengths", lengths, batch, "ERR-8")
            if (counts < 0).any() or (counts > most).any():
                raise ArgumentError(f"{name}_lengths: expected 0 to {most}, got {lengths!r} [ERR-9]")
            allowed &= positions < _with_axes(counts, len(shape))
    if query_segment_ids is not None or key_segment_ids is not None:
        own, other = _check_segments(query_segment_ids, key_segment_ids, batch, (queries, keys))
        equal = own[..., :, None] == other[..., None, :]  # (*B, L, S)
        allowed &= equal if len(shape) == 2 else equal[..., None, :, :]
    if bias is not None:
        bias = np.asarray(bias)
        check_broadcast("bias", bias.shape, shape, "SCORE-4")
        allowed &= bias != -np.inf
    return allowed


def _within(window: Window, p: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Inclusive on both sides: (0, 0) is the query's own position."""
    left, right = window
    after: NDArray[np.bool_]
    after = np.ones(np.broadcast_shapes(p.shape, j.shape), dtype=bool) if left is None else p - left <= j
    return after if right is None else after & (j <= p + right)


def _with_axes(per_batch: NDArray[np.int64], ndim: int) -> NDArray[np.int64]:
    """From ``(*B)`` to ``(*B, 1, 1, 1)``, so that it meets ``(*B, Hq, L, S)``; two axes have no batch."""
    return per_batch.reshape(per_batch.shape + (1,) * (ndim - per_batch.ndim))


def _check_window(window: Any) -> Window:
    fits = isinstance(window, tuple | list) and len(window) == 2
    for bound in window if fits else ():
        whole = isinstance(bound, int | np.integer) and not isinstance(bound, bool) and bound >= 0
        fits = fits and (bound is None or bool(whole))
    if not fits:
        raise ArgumentError(
            f"window: expected a pair of None or whole numbers from 0 on, got {window!r} [ERR-7]"
        )
    left, right = window
    return left, right


def _check_segments(
    query_segment_ids: ArrayLike | None,
    key_segment_ids: ArrayLike | None,
    batch: tuple[int, ...],
    positions: tuple[int, int],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    given = {"query_segment_ids": query_segment_ids, "key_segment_ids": key_segment_ids}
    found = []
    for (name, ids), count in zip(given.items(), positions, strict=True):
        if ids is None:
            raise ArgumentError(f"{name}: expected ids as for the other side, got None [ERR-10]")
        found.append(check_integers(name, ids, (*batch, count), "ERR-10", alone=False))
    return found[0], found[1]

"""Weights after a given choice of dropped ones, as in the chapter `dropout`."""

import numpy as np
from numpy.typing import ArrayLike

from attnspec.reference.errors import ArgumentError, check_booleans, check_number
from attnspec.reference.notation import Real, check_broadcast


def dropout(weights: Real, *, mask: ArrayLike | None, rate: float) -> Real:
    """Drop weights and scale up those that are kept.

    Parameters
    ----------
    weights : (*B, Hq, L, S)
        After the softmax: the denominator is not computed anew.
    mask : bool, broadcasts to (*B, Hq, L, S), or None
        True where a weight is kept.
    rate : float
        From 0 to below 1.

    Returns
    -------
    (*B, Hq, L, S)

    Raises
    ------
    ArgumentError
        When the rate is out of range, or not 0 without a mask.

    Notes
    -----
    Rules DROP-1, DROP-2 and DROP-4.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.dropout import dropout
    >>> dropout(np.array([[0.75, 0.25]]), mask=[True, False], rate=0.5).tolist()
    [[1.5, 0.0]]
    """
    if not 0 <= check_number("dropout_rate", rate, "DROP-4") < 1:
        raise ArgumentError(f"dropout_rate: expected 0 to below 1, got {rate!r} [DROP-4]")
    if mask is None:
        if rate:
            raise ArgumentError(f"dropout_rate: expected 0 without a dropout_mask, got {rate!r} [DROP-4]")
        return weights
    kept = check_booleans("dropout_mask", mask, "ERR-4")
    check_broadcast("dropout_mask", kept.shape, weights.shape, "DROP-1")
    return np.where(kept, weights / weights.dtype.type(1 - rate), 0)

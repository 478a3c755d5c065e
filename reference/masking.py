"""Which keys a query may attend to, as in the chapter `masking`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnspec.reference.errors import ArgumentError
from attnspec.reference.notation import check_broadcast


def allowed_keys(
    shape: tuple[int, ...],
    *,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    bias: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    """Tell for each query and key whether every source allows the pair.

    Parameters
    ----------
    shape : tuple of int
        The scores' shape, ``(*B, H, L, S)``.
    mask : bool, broadcasts to ``shape``, optional
        True where the query may attend to the key.
    is_causal : bool, optional
        Disallow keys after the query.
    bias : floating, broadcasts to ``shape``, optional
        Disallows where it is minus infinity.

    Returns
    -------
    bool array of that shape

    Raises
    ------
    ArgumentError
        When the mask is not boolean or something does not broadcast.

    Notes
    -----
    Rules MASK-1 to MASK-4.

    Examples
    --------
    >>> from attnspec.reference import allowed_keys
    >>> allowed_keys((2, 3), is_causal=True).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    """
    allowed: NDArray[Any] = np.ones(shape, dtype=bool)
    if mask is not None:
        mask = np.asarray(mask)
        if mask.dtype != bool:
            # An additive mask taken for a boolean one would invert it: 0 means attend there.
            raise ArgumentError(f"mask: expected bool, got {mask.dtype}; an additive mask is a bias [MASK-1]")
        check_broadcast("mask", mask.shape, shape, "MASK-1")
        allowed &= mask
    if is_causal:
        allowed &= np.tri(*shape[-2:], dtype=np.bool_)  # (L, S): j <= i
    if bias is not None:
        bias = np.asarray(bias)
        check_broadcast("bias", bias.shape, shape, "SCORE-4")
        allowed &= bias != -np.inf
    return allowed

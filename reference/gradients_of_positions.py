"""The gradient of rotary embedding."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from attnspec.reference.call import Array, Call, step
from attnspec.reference.evaluate import evaluate
from attnspec.reference.gradients_of_companions import check_cotangent
from attnspec.reference.positions import Rotary, check_rotary, rotated


def rotary_vjp(
    features: ArrayLike,
    d_rotated: ArrayLike,
    *,
    positions: ArrayLike | None = None,
    offset: ArrayLike = 0,
    base: float = 10000.0,
    inverse_frequencies: ArrayLike | None = None,
    attention_factor: float = 1.0,
    cosines: ArrayLike | None = None,
    sines: ArrayLike | None = None,
    axis_positions: ArrayLike | None = None,
    sections: ArrayLike | None = None,
    interleaved: bool = False,
    rotary_depth: int | None = None,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    """Gradient of rotary embedding for a given cotangent: the transpose of the rotation.

    Parameters
    ----------
    features : (*B, H, N, D) or (N, D)
        Only the shape and dtype are used.
    d_rotated : (*B, H, N, D) or (N, D)
        Cotangent of the rotated features.
    positions, offset, base, inverse_frequencies, attention_factor, cosines, sines
        As in `rotary`.
    axis_positions, sections, interleaved, rotary_depth
        As in `rotary`.
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, H, N, D)

    Raises
    ------
    ArgumentError
        If an argument is refused.

    Notes
    -----
    Rule GRAD-22.

    Examples
    --------
    >>> from attnspec.reference import rotary_vjp
    >>> rotary_vjp([[0.0, 0.0]], [[1.0, 0.0]], offset=1).round(4).tolist()
    [[0.5403, -0.8415]]
    """
    result: NDArray[Any] = evaluate(rotary_vjp_of, locals())
    return result


def rotary_vjp_of(call: Call, features: Array, d_rotated: Array, **options: Any) -> Array:
    """Check the arguments, and rotate back."""
    checked = check_rotary(Rotary(call.steps, call.xp, call.dtype, features, **options))
    check_cotangent(call, "d_rotated", d_rotated, features, tuple(features.shape))
    return turned_back(checked, d_rotated)


@step
def turned_back(call: Rotary, g: Array) -> Array:
    """Rotate each pair by its negative angle. A cotangent past the rotary depth does not change (GRAD-22)."""
    return rotated(call, g, back=True)

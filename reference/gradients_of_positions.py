"""The gradient of rotary embedding."""

from typing import Any

from attnspec.reference.call import Array, Call, step
from attnspec.reference.functions import public
from attnspec.reference.gradients_of_companions import check_cotangent
from attnspec.reference.positions import Rotary, check_rotary, rotated


def rotary_vjp_of(call: Call, features: Array, d_rotated: Array, **options: Any) -> Array:
    """Gradient of rotary embedding for a given cotangent: the transpose of the rotation.

    Notes
    -----
    Rule GRAD-22.

    Examples
    --------
    >>> from attnspec.reference import rotary_vjp
    >>> rotary_vjp([[0.0, 0.0]], [[1.0, 0.0]], offset=1).round(4).tolist()
    [[0.5403, -0.8415]]
    """
    checked = check_rotary(Rotary(call.steps, call.xp, call.dtype, features, **options))
    check_cotangent(call, "d_rotated", d_rotated, features, tuple(features.shape))
    return turned_back(checked, d_rotated)


rotary_vjp = public(rotary_vjp_of)


@step
def turned_back(call: Rotary, g: Array) -> Array:
    """Rotate each pair by its negative angle. A cotangent past the rotary depth does not change (GRAD-22)."""
    return rotated(call, g, back=True)

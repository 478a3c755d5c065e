"""How the interface of a function differs from the canonical one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attnspec import OPERATIONS
from attnspec.backends.errors import BackendError
from attnspec.backends.user.native import check_names

_OPERATION = OPERATIONS["attention"]
#: The layouts of the arrays. In the last, heads and depth share an axis.
LAYOUTS = ("BHSD", "BSHD", PACKED := "BS(HD)")
#: The sizes that a function may take as arguments.
SIZES = ("batch", "query_heads", "key_heads", "queries", "keys", "depth", "value_depth")


@dataclass(frozen=True)
class Convention:
    """How the interface of a function differs from the canonical one.

    Attributes
    ----------
    names : mapping of str to str
        Canonical name to the function's name, for arguments whose names differ. Mask and
        bias may share a name if the function tells them apart by their dtype.
    layout : {"BHSD", "BSHD", "BS(HD)"}
        Whether heads come before positions, as in the specification, or after them, or share the
        last axis with the depth.
    mask : {"attend", "ignore"}
        What True in a mask means to the function.
    axes : int or None
        The number of axes that its arrays must have, if it takes only one number.
        Arrays with fewer get leading axes of length one; a call with more is unsupported.
    loop : bool
        Whether a call with more axes is made once for each batch entry, and with two axes for
        each head too.
    sizes : mapping of str to str
        A size of the call, in `SIZES`, to the parameter that takes it, such as the number of heads.
    mask_axes : int or None
        The number of axes of its mask and bias, which get leading axes of length one.
    past : tuple of str
        The parameters for the keys and the values before the queries. A query offset is passed as
        these. They have heads before positions if heads and depth share an axis.
    returns : tuple of str
        Its results, if they do not depend on ``return_lse`` and ``return_weights``.
    always : mapping
        Flags that it always applies. A call without such a flag is unsupported. A flag
        that the function has no parameter for is not passed.
    given : tuple of str
        Options to pass in every call, because the default of the function is not the
        specified one. A call without the option passes the specified default. Options
        that the function requires are always passed.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    layout: Literal["BHSD", "BSHD", "BS(HD)"] = "BHSD"
    mask: Literal["attend", "ignore"] = "attend"
    axes: int | None = None
    loop: bool = False
    sizes: Mapping[str, str] = field(default_factory=dict)
    mask_axes: int | None = None
    past: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()
    always: Mapping[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = ()


def check_convention(name: str, convention: Convention) -> None:
    """Check the fields of a convention."""
    check_names(name, convention.names)
    for what, got, expected in (
        ("layout", convention.layout, LAYOUTS),
        ("mask", convention.mask, ("attend", "ignore")),
        ("axes", convention.axes, (None, 2, 3, 4) if convention.loop else (None, 3, 4)),
        ("mask_axes", convention.mask_axes, (None, 2, 3, 4, 5)),
        ("past", len(convention.past), (0, 2)),
    ):
        if got not in expected:
            choices = " or ".join(str(one) for one in expected if one is not None)
            raise BackendError(f"backend {name}: {what}: expected {choices}, got {got!r}")
    if convention.returns and (
        convention.returns[0] != "output" or not set(convention.returns) <= set(_OPERATION.outputs)
    ):
        raise BackendError(
            f"backend {name}: returns: expected output, then some of lse, weights, got {convention.returns!r}"
        )
    wrong = [option for option in convention.given if option not in _OPERATION.options]
    if wrong:
        raise BackendError(
            f"backend {name}: given: expected options of the specification, got {', '.join(map(str, wrong))}"
        )
    wrong = [size for size in convention.sizes if size not in SIZES]
    if wrong:
        raise BackendError(
            f"backend {name}: sizes: expected some of {', '.join(SIZES)}, got {', '.join(wrong)}"
        )
    if convention.loop and convention.axes is None:
        raise BackendError(f"backend {name}: loop: expected axes beside it, got none")
    if convention.layout == PACKED and convention.axes not in (None, 4):
        raise BackendError(
            f"backend {name}: axes: expected 4 with the layout {PACKED}, got {convention.axes}"
        )

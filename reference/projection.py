"""Projection of tokens: the chapter `projection`."""

from typing import Literal

from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import need, real, same_dtype
from attnspec.reference.functions import public
from attnspec.reference.notation import narrow, out_dtype, wide

Convention = Literal["row", "column", "linear"]


def projection_of(call: Call, tokens: Array, weight: Array, *, bias: Array, convention: Convention) -> Array:
    """Project tokens by a weight: ``tokens W + b``, ``W tokens + b`` or ``tokens W^T + b``.

    Notes
    -----
    Rules PROJ-1 to PROJ-4, PROJ-6 and PROJ-7.

    Examples
    --------
    >>> from attnspec.reference import projection
    >>> projection([[1.0, 2.0]], [[3.0], [4.0]], bias=[0.5]).tolist()
    [[11.5]]
    """
    same_dtype(call, tokens=tokens, weight=weight)
    projected = project(call, "", tokens, weight, bias, convention)
    return narrow(call, projected, out_dtype(call, tokens))


projection = public(projection_of)


def project(
    call: Call, name: str, tokens: Array, weight: Array, bias: Array, convention: Convention
) -> Array:
    """Project in the working precision. Errors name ``NAME_weight`` and ``NAME_bias``."""
    weight = check_projection(call, name, tokens, weight, bias, convention)
    return _project(call, tokens, weight, bias, convention)


@part
def _project(call: Call, tokens: Array, weight: Array, bias: Array, convention: Convention) -> Array:
    result = multiply_weight(call, wide(call, tokens), wide(call, weight), convention)
    if bias is not None:
        result = call.xp.astype(shift(call, result, wide(call, bias), convention), result.dtype, copy=False)
    return result


@step
def check_projection(
    call: Call, name: str, tokens: Array, weight: Array, bias: Array, convention: Convention
) -> Array:
    """Check shapes. A weight is never transposed to make it fit (ERR-5, PROJ-4, PROJ-6)."""
    of_weight, of_bias = (f"{name}_{part}" if name else part for part in ("weight", "bias"))
    known = ("row", "column", "linear")
    need("convention", convention in known, "'row', 'column' or 'linear'", repr(convention), "ERR-16")
    need("tokens", tokens.ndim >= 2, "two axes or more", f"shape {tuple(tokens.shape)}", "ERR-16")
    depth = tokens.shape[-2 if convention == "column" else -1]
    shape = tuple(weight.shape)
    inputs, features = (0, -1) if convention == "row" else (-1, 0)
    fits = len(shape) == 2 and shape[inputs] == depth
    fitting = f"({depth}, F)" if convention == "row" else f"(F, {depth})"
    need(of_weight, fits, f"shape {fitting} as tokens have depth {depth}", shape, "PROJ-4")
    need(of_weight, 0 not in shape, "axes of size 1 or more", f"shape {shape}", "ERR-5")
    if bias is not None:
        got = tuple(real(call, of_bias, bias, "ERR-2").shape)
        need(of_bias, got == (shape[features],), f"shape ({shape[features]},)", got, "PROJ-6")
    return weight


@step
def multiply_weight(call: Call, tokens: Array, weight: Array, convention: Convention) -> Array:
    """``tokens W``, ``W tokens`` or ``tokens W^T`` (PROJ-1, PROJ-2, PROJ-7)."""
    if convention == "column":
        return weight @ tokens
    return tokens @ (weight if convention == "row" else call.xp.matrix_transpose(weight))


@step
def shift(_call: Call, result: Array, bias: Array, convention: Convention) -> Array:
    """Add one number to each feature (PROJ-3)."""
    # Columns need another axis: if N = F, adding the vector itself would add it along the tokens.
    return result + (bias[:, None] if convention == "column" else bias)

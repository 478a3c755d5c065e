"""Self-attention: three projections of the same tokens, then attention (PROJ-5)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Array, Call, Given, step
from attnspec.reference.errors import need, same_dtype
from attnspec.reference.evaluate import evaluate
from attnspec.reference.notation import narrow, stored
from attnspec.reference.projection import Convention, project

#: The results of the projections.
PROJECTED = ("query", "key", "value")


def self_attention(
    tokens: ArrayLike,
    query_weight: ArrayLike,
    key_weight: ArrayLike,
    value_weight: ArrayLike,
    *,
    query_bias: ArrayLike | None = None,
    key_bias: ArrayLike | None = None,
    value_bias: ArrayLike | None = None,
    convention: Convention = "row",
    scale: float | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    """Project tokens three times, and attend.

    Parameters
    ----------
    tokens : (*B, L, E), or (*B, E, L) in the column convention
    query_weight, key_weight : (E, D), or (D, E) in the column and the linear convention
    value_weight : (E, Dv), or (Dv, E) in the column and the linear convention
    query_bias, key_bias, value_bias : (D,), (D,) and (Dv,), optional
    convention : {"row", "column", "linear"}
        Axis order of the tokens, the weights and the result.
    scale, mask, is_causal
        As in `attention`.
    dtype : data type, optional
        Working precision and dtype of the result.

    Returns
    -------
    (*B, L, Dv), or (*B, Dv, L) in the column convention

    Raises
    ------
    ArgumentError
        If an argument is refused.

    Examples
    --------
    >>> from attnspec.reference import self_attention
    >>> self_attention([[1.0], [2.0]], [[0.0]], [[1.0]], [[10.0]]).tolist()
    [[15.0], [15.0]]
    """
    result: NDArray[Any] = evaluate(self_attention_of, locals())
    return result


def self_attention_of(call: Call, **given: Any) -> Array:
    """Project to rows in the working precision, attend, and round once."""
    given = check_self(call, given)
    tokens, columns = given["tokens"], given["convention"] == "column"
    same_dtype(call, tokens=tokens, **{f"{name}_weight": given[f"{name}_weight"] for name in PROJECTED})
    rows = []
    for name in PROJECTED:
        weight, bias = given[f"{name}_weight"], given[f"{name}_bias"]
        found = project(call, name, tokens, weight, bias, given["convention"])
        rows.append(call.xp.matrix_transpose(found) if columns else found)
    depth, other = rows[0].shape[-1], rows[1].shape[-1]
    need("key_weight", other == depth, f"{depth} features as query_weight has", other, "SHAPE-6")
    options = {name: given[name] for name in ("scale", "mask", "is_causal")}
    output = attention_of(call, *rows, **options)  # (*B, L, Dv)
    return narrow(call, call.xp.matrix_transpose(output) if columns else output, stored(call, tokens))


@step
def check_self(_call: Call, given: Given) -> Given:
    """Check nothing: the parts check their own arguments."""
    return given

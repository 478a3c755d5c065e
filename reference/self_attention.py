"""Self-attention: three projections of the same tokens, then attention (PROJ-5)."""

from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Array, Call, Given, step
from attnspec.reference.errors import need, same_dtype
from attnspec.reference.functions import public
from attnspec.reference.notation import narrow, stored
from attnspec.reference.projection import project

#: The results of the projections.
PROJECTED = ("query", "key", "value")


def self_attention_of(call: Call, **given: Any) -> Array:
    """Project tokens three times, and attend.

    Examples
    --------
    >>> from attnspec.reference import self_attention
    >>> self_attention([[1.0], [2.0]], [[0.0]], [[1.0]], [[10.0]]).tolist()
    [[15.0], [15.0]]
    """
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


self_attention = public(self_attention_of)


@step
def check_self(_call: Call, given: Given) -> Given:
    """Check nothing: the parts check their own arguments."""
    return given

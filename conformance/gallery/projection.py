"""Wrong about projections."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.call import Arguments, Call
from attnspec.reference.projection import Convention

ENTRIES = rows(
    ("bias_of_the_key_for_the_query", "check_self", "PROJ-5", "V",
     lambda _call, given: given | {"query_bias": given["key_bias"]},
     "Add the bias of the keys to the queries too."),
    ("bias_of_the_value_dropped", "check_self", "PROJ-5", "V",
     lambda _call, given: given | {"value_bias": None},
     "Take a bias for the values and leave it out."),
    ("linear_taken_for_row_in_self_attention", "check_self", "PROJ-5", "V",
     lambda _call, given: given | {"convention": "row"} if given["convention"] == "linear"
         and len({*given["query_weight"].shape, *given["value_weight"].shape}) == 1 else given,
     "Multiply by square weights of linear layers as they are held, in self-attention alone."),
    ("bias_along_the_tokens", "shift", "PROJ-3", "V",
     lambda call, result, bias, convention: base.shift(call, result, bias, "row"
         if result.shape[-1] == len(bias) else convention),
     "Add the bias to columns as to rows, where there are as many tokens as features."),
    ("bias_with_an_axis_more", "check_projection", "PROJ-6", "U",
     lambda call, name, tokens, weight, _bias,
         convention: base.check_projection(call, name, tokens, weight, None, convention),
     "Take no notice of the shape of a bias."),
)  # fmt: skip


@wrong("multiply_weight", "PROJ-1", "V")
def square_weight_transposed(call: Call, tokens: Array, weight: Array, convention: Convention) -> Any:
    """Hold weights as (features, depth) inside, which shows where they are square."""
    square = weight.shape[0] == weight.shape[1] and convention == "row"
    return base.multiply_weight(call, tokens, weight.T if square else weight, convention)


@wrong("multiply_weight", "PROJ-2", "V")
def columns_taken_for_rows(call: Call, tokens: Array, weight: Array, convention: Convention) -> Any:
    """Multiply from the right in either convention, where that fits."""
    square = weight.shape[0] == weight.shape[1]
    fits = convention == "column" and square and tokens.shape[-1] == weight.shape[0]
    return base.multiply_weight(call, tokens, weight, "row" if fits else convention)


@wrong("multiply_weight", "PROJ-7", "V")
def linear_taken_for_row(call: Call, tokens: Array, weight: Array, convention: Convention) -> Any:
    """Multiply by the weight of a linear layer as it is held, where it is square."""
    square = convention == "linear" and weight.shape[0] == weight.shape[1]
    return base.multiply_weight(call, tokens, weight, "row" if square else convention)


@wrong("multiply_weight", "PROJ-1", "G")
def odd_depth_cut(call: Call, tokens: Array, weight: Array, convention: Convention) -> Any:
    """Take the features of a token in pairs, and leave the last of an odd number."""
    even = weight.shape[0] // 2 * 2
    if convention != "row" or not even:
        return base.multiply_weight(call, tokens, weight, convention)
    return tokens[..., :even] @ weight[:even]


@wrong("shift", "PROJ-3", "V")
def bias_scaled_by_the_tokens(call: Call, result: Array, bias: Array, convention: Convention) -> Any:
    """Add the bias once for each token, to their sum."""
    return base.shift(call, result, bias * result.shape[-1 if convention == "column" else -2], convention)


@wrong("check_projection", "PROJ-4", "U")
def weight_transposed_to_fit(
    call: Call, name: str, tokens: Array, weight: Array, bias: Array | None, convention: Convention
) -> Any:
    """Turn a weight round that would fit the other way."""
    depth = tokens.shape[-2 if convention == "column" else -1]
    fits = weight.shape[0 if convention == "row" else -1] == depth
    return base.check_projection(call, name, tokens, weight if fits else weight.T, bias, convention)


@wrong("check_self", "PROJ-5", "K")
def scale_of_the_token_depth(_call: Call, given: Arguments) -> Any:
    """Divide by the root of the depth before the projection."""
    depth = given["tokens"].shape[-2 if given["convention"] == "column" else -1]
    return given if given["scale"] is not None else given | {"scale": 1 / depth**0.5}


@wrong("check_self", "PROJ-5", "H")
def mask_transposed_in_columns(_call: Call, given: Arguments) -> Any:
    """Turn a mask round with the tokens, where they are columns."""
    turn = given["mask"] is not None and given["mask"].ndim > 1 and given["convention"] == "column"
    return given | {"mask": np.swapaxes(given["mask"], -1, -2)} if turn else given

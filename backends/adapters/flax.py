"""Flax, on JAX: ``dot_product_attention`` of Linen and of NNX."""

from collections.abc import Callable
from typing import Any

from flax import linen, nnx

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_NO_DEPTH,
    OF_OTHER_TYPES,
    as_booleans,
    has_bias_beyond_differences,
    has_row_below,
    has_several_dtypes,
    rows_below,
    with_dtype,
    with_more_axes,
    with_number,
)
from attnspec.backends.adapters.deviations import bias_overflow, empty_row_gradient
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.library import load_library
from attnspec.backends.outcome import OtherCall, Special, row_elements
from attnspec.backends.user.function import describe

_VERSIONS = ">=0.12.8,<0.13"
_DIALECT = {"MASK-2": "added", "MASK-6": "uniform", "GRAD-10": "uniform"}


def linen_backend() -> Backend:
    """Run the function of Linen, which is written in separate operations."""

    def attention(query: Any, key: Any, value: Any, *, bias: Any = None, mask: Any = None) -> Any:
        return _with_heads(linen.dot_product_attention, query, key, value, bias=bias, mask=mask)

    dialect = _DIALECT | {"NUM-5": {"float16": "storage", "bfloat16": "storage"}}
    deviations = (*_OF_LINEN, *_OF_BOTH)
    return _backend("flax-linen", attention, heads="equal", dialect=dialect, deviations=deviations)


def nnx_backend() -> Backend:
    """Run the function of NNX, which calls ``jax.nn.dot_product_attention``."""

    def attention(
        query: Any, key: Any, value: Any, *, bias: Any = None, mask: Any = None, is_causal: bool = False
    ) -> Any:
        options = {"bias": bias, "mask": mask, "is_causal": is_causal}
        return _with_heads(nnx.dot_product_attention, query, key, value, **options)

    dialect = _DIALECT | {"NUM-2": "float32"}
    deviations = (*_OF_NNX, *_OF_BOTH)
    return _backend("flax-nnx", attention, value_depth="key", dialect=dialect, deviations=deviations)


def _backend(name: str, function: Callable[..., Any], **said: Any) -> Backend:
    load_library("jax").prepare_eager()
    return describe(
        function, name=name, array="jax", library="flax", layout="BSHD", versions=_VERSIONS, **said
    )


def _with_heads(function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """Give arrays of two axes the axis of heads, which Flax requires."""
    if any(array.ndim != 2 for array in arrays):
        return function(*arrays, **options)
    return function(*(array[:, None] for array in arrays), **options)[:, 0]


#: The lowest bias that a disallowed score of NNX is above.
_LOW = 2e38
_OF_BOTH = (
    Deviation(("NUM-1",), "the output has the widest dtype of queries, keys and values", "flax/mixed_dtypes",
        with_dtype(), when=has_several_dtypes),
    empty_row_gradient("flax/empty_row_gradient_bias"),
)  # fmt: skip
_OF_LINEN = (
    Deviation(("MASK-5", "NUM-5"),
        "disallowed scores are replaced by a number, and a bias of allowed keys may be as low",
        "flax/masked_lowest", with_number(),
        when=lambda arguments: "mask" in arguments and has_bias_beyond_differences(arguments, _LOW)),
    bias_overflow("flax/bias_overflow", "float16"),
    Deviation(("ERR-2",), "integers, booleans and complex numbers are accepted", "flax/not_checked",
        OF_OTHER_TYPES),
    Deviation(("ERR-4",), "a mask of numbers is accepted", "flax/not_checked", as_booleans("mask")),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "flax/not_checked", OF_NO_DEPTH),
    Deviation(("ERR-15",), "a bias or a mask of more axes than the scores is accepted", "flax/not_checked",
        OtherCall(with_more_axes)),
)  # fmt: skip
_OF_NNX = (
    Deviation(("MASK-5",), "a row whose bias lies below the numbers of float32 is NaN", "jax/bias_of_float64",
        Special(row_elements(rows_below(3.4e38))), when=lambda arguments: has_row_below(arguments, 3.5e38),
        dtypes=("float64",)),
    Deviation(("MASK-5", "NUM-5"),
        "disallowed scores are replaced by a number, and a bias of allowed keys may be as low",
        "flax/masked_lowest", with_number(added=-2.38e38),
        when=lambda arguments: "mask" in arguments and has_bias_beyond_differences(arguments, _LOW)),
    bias_overflow("jax/bias_overflow"),
    Deviation(("ERR-2",), "integers, booleans and complex numbers are accepted", "flax/nnx_not_checked",
        OF_OTHER_TYPES),
    Deviation(("ERR-4",), "a mask of numbers is accepted", "flax/nnx_not_checked", as_booleans("mask")),
    Deviation(("ERR-5",), "a depth of 0 throughout is accepted", "flax/nnx_not_checked", OF_NAN),
)  # fmt: skip

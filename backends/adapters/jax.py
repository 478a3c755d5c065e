"""JAX: ``jax.nn.dot_product_attention``, eagerly and under ``jax.jit``. JAX chooses the implementation."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_OTHER_TYPES,
    Arguments,
    has_row_below,
    is_masked,
    lse_elements,
    rows_below,
    with_masked_rows_open,
    with_number,
    with_window_as_mask,
)
from attnspec.backends.adapters.deviations import bias_overflow, empty_row_gradient, mask_overflow
from attnspec.backends.backend import Backend
from attnspec.backends.constraints import Constraints
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.outcome import (
    Bound,
    InDtype,
    OtherCall,
    Raises,
    Special,
    every_element,
    row_elements,
)
from attnspec.dtypes import SHORT

#: The releases on which the declarations were observed.
_VERSIONS = ">=0.10,<0.11"
#: Words of the messages of calls that cuDNN does not offer.
_DECLINED = ("cuDNN doesn't support", "Sliding window attention is only supported with")
#: The largest number of int32.
_WIDEST = 2**31 - 1
_eager = jax.nn.dot_product_attention
_jitted = jax.jit(_eager, static_argnames=("is_causal", "local_window_size", "return_residual"))


def eager_backend() -> Backend:
    """Run it eagerly, with little optimization of each operation. `jit_backend` uses the defaults of JAX."""
    load_library("jax").prepare_eager()
    return _backend("jax-nn", _eager)


def jit_backend() -> Backend:
    """Run it as one compiled function. The scale and the lengths are traced."""
    # The compiler for the CPU refuses float16, and bfloat16 in some shapes such as one key. See the findings
    # `jax/jit_float16` and `jax/jit_one_key`.
    backend, dtypes = _backend("jax-nn-jit", _jitted), ("float32", "float64")
    shown = tuple(x for x in backend.deviations if not x.dtypes or set(x.dtypes) & set(dtypes))
    return replace(backend, dtypes=dtypes, deviations=shown)


def cudnn_backend() -> Backend:
    """Run the kernel of cuDNN on a GPU as one compiled function. It takes half precision."""
    if not any(device.platform == "gpu" for device in jax.devices()):
        raise BackendError(f"backend jax-cudnn: expected a GPU for JAX {jax.__version__}, got none")
    static = ("scale", "is_causal", "local_window_size", "return_residual")  # cuDNN builds the scale in
    jitted = jax.jit(partial(_eager, implementation="cudnn"), static_argnames=static)

    def function(query: Any, key: Any, value: Any, *, bias: Any, mask: Any, **options: Any) -> Any:
        pairs = (query.shape[1], key.shape[1])
        whole = [  # a column or a row alone is rejected
            None if given is None else jnp.broadcast_to(given, (*given.shape[:2], *pairs))
            for given in (bias, mask)
        ]
        try:
            return jitted(query, key, value, bias=whole[0], mask=whole[1], **options)
        except (ValueError, jax.errors.JaxRuntimeError) as error:
            if not any(words in str(error) for words in _DECLINED):
                raise
            raise Unsupported(str(error)) from None

    made = _backend("jax-cudnn", function)
    return replace(
        made,
        dtypes=SHORT,
        dialect={"GRAD-6": "ignored"},
        deviations=_OF_CUDNN,
        device="cuda",
        versions=">=0.11,<0.12",
        constraints=Constraints(depths=(8, 64), value_depth="key"),
    )


def _backend(name: str, function: Callable[..., Any]) -> Backend:
    def attention(
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        bias: Any = None,
        mask: Any = None,
        is_causal: bool = False,
        window: Any = None,
        query_lengths: Any = None,
        key_lengths: Any = None,
        return_lse: bool = False,
    ) -> Any:
        if key.shape[-1] != value.shape[-1] and 0 not in (key.shape[-1], value.shape[-1]):
            raise Unsupported("dot_product_attention requires values and keys of the same depth")
        require_axes(2, query, key, value)
        outer = query.shape[:-3]
        returned = function(
            *_to_btnh(query, key, value),
            bias=None if bias is None else _to_four_axes(bias, query.shape[:-2]),
            mask=None if mask is None else _to_four_axes(mask, query.shape[:-2]),
            scale=scale,
            is_causal=is_causal,
            local_window_size=None if window is None else _to_sides(window, query.shape[-2] + key.shape[-2]),
            query_seq_lengths=None if query_lengths is None else _to_lengths(query_lengths, outer),
            key_value_seq_lengths=None if key_lengths is None else _to_lengths(key_lengths, outer),
            return_residual=return_lse,
        )  # (B, L, H, Dv), with (B, L, H) for the lse
        results = returned if return_lse else (returned,)
        shapes = (query.shape[:-1] + value.shape[-1:], query.shape[:-1])
        laid = tuple(_from_blh(result, shape) for result, shape in zip(results, shapes, strict=False))
        return laid if return_lse else laid[0]

    dialect = {
        "MASK-2": "added",
        "MASK-6": "uniform",
        "NUM-2": "float32",
        "SOFT-7": "finite",
        "GRAD-6": "ignored",
        "GRAD-10": "uniform",
    }
    library = load_library("jax")
    return Backend(
        name, library, attention, library.dtypes, dialect=dialect, deviations=_DEVIATIONS, versions=_VERSIONS
    )


# The change of layout is compiled as a whole. Its single operations would take most of the compilation time.
@jax.jit  # type: ignore[untyped-decorator] # JAX declares no type for it
def _to_btnh(*arrays: Any) -> list[Any]:
    """Convert ``(*B, H, L, D)`` to JAX's ``(B, L, H, D)``, with one batch axis."""
    flat = [array.reshape((math.prod(array.shape[:-3]), *((1, *array.shape)[-3:]))) for array in arrays]
    return [jnp.swapaxes(array, 1, 2) for array in flat]


@partial(jax.jit, static_argnames="shape")
def _from_blh(array: Any, shape: tuple[int, ...]) -> Any:
    return jnp.swapaxes(array, 1, 2).reshape(shape)


@partial(jax.jit, static_argnames="outer")
def _to_four_axes(array: Any, outer: tuple[int, ...]) -> Any:
    """Convert a mask or bias to four axes, each of its full size or 1, as JAX requires for broadcasting."""
    if array.ndim < 2:
        array = array.reshape((1,) * (2 - array.ndim) + array.shape)
    if len(outer) < 2:
        return array.reshape((1,) * (4 - array.ndim) + array.shape)
    full = broadcast(jnp, array, (*outer, *array.shape[-2:]))
    return full.reshape((math.prod(outer[:-1]), outer[-1], *array.shape[-2:]))


def _to_sides(window: Any, farthest: int) -> tuple[int, int]:
    """Replace an open side by a distance that no key has, because JAX takes two integers."""
    try:
        left, right = (farthest if side is None else side for side in window)
    except (TypeError, ValueError) as error:
        raise Unsupported(f"window: expected two sides to be translated, got {window!r}") from error
    return left, right


def _to_lengths(lengths: Any, outer: tuple[int, ...]) -> Any:
    """Convert one length or ``(*B)`` lengths to JAX's ``(B,)`` of int32. JAX has to refuse anything else."""
    if isinstance(lengths, Integral) and lengths is not True and lengths is not False:
        return jnp.full((math.prod(outer),), int(lengths), jnp.int32)
    if getattr(lengths, "shape", None) == outer and jnp.issubdtype(lengths.dtype, jnp.integer):
        return jnp.ravel(lengths).astype(jnp.int32)
    return lengths


#: The number for a disallowed score, in float32 and rounded to bfloat16, which is also the lse of such a row.
_FILLS = (
    float(np.float32(-0.7) * np.finfo(np.float32).max),
    -2.3793181124549994e38,
    -3.4028234663852886e38,
    -3.3895313892515355e38,
)
OF_FILL = (Special(lse_elements(rows_below(2.38e38)), _FILLS), with_number(added=_FILLS[0]))


def _boolean_elements(arguments: Arguments) -> Mapping[str, NDArray[np.bool_]]:
    """Find the results that are booleans, as queries, keys and values are."""
    return dict.fromkeys(("output", "lse"), np.asarray(arguments["query"].dtype.kind == "b"))


def _with_overflow(arguments: Arguments) -> Arguments:
    """Disallow every key after the first: its position plus the left bound exceeds 32 bits."""
    pairs = (arguments["query"].shape[-2], arguments["key"].shape[-2])
    first = np.broadcast_to(np.arange(pairs[1]) == 0, pairs)
    window = (None, arguments["window"][1])
    return {**arguments, "window": window, "mask": first & arguments.get("mask", True)}


_DEVIATIONS = (
    Deviation(("NUM-7",), "the lse has the dtype of the keys", "jax/lse_dtype", InDtype("key"),
        dtypes=("float16", "bfloat16"), outputs=("lse",),
        when=lambda arguments: arguments["key"].dtype.itemsize == 2),
    bias_overflow("jax/bias_overflow"),
    Deviation(("MASK-5",), "a row whose bias lies below the numbers of float32 is NaN", "jax/bias_of_float64",
        Special(row_elements(rows_below(3.4e38)), (np.nan, -np.inf)),
        when=lambda arguments: has_row_below(arguments, 3.5e38), dtypes=("float64",)),
    Deviation(("MASK-5", "NUM-5"),
        "a masked key outweighs allowed keys whose bias is below the replacement of scores, -2.38e38",
        "jax/bias_below_fill", OF_FILL,
        when=lambda arguments: "mask" in arguments and has_row_below(arguments, 2.3e38)),
    empty_row_gradient("jax/empty_row_gradient_bias"),
    Deviation(("ERR-5",), "a depth of 0 is accepted if queries, keys and values all have it",
        "jax/depth_zero", OF_NAN,
        when=lambda arguments: all(arguments[name].shape[-1] == 0 for name in ("query", "key", "value"))),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN", "jax/scale_not_finite",
        OF_NAN),
    Deviation(("ERR-2",), "a bias of integers or booleans is added", "jax/bias_of_booleans", OF_OTHER_TYPES,
        when=lambda arguments: arguments.get("bias", np.ones(1)).dtype.kind in "bi"),
    Deviation(("ERR-2",), "arrays of integers, booleans and complex numbers are accepted",
        "jax/not_floating_point", (Special(_boolean_elements, (1.0,)), *OF_OTHER_TYPES)),
    Deviation(("ERR-7",), "a window of negative numbers or fractions is accepted", "jax/window_not_checked",
        OtherCall(with_window_as_mask)),
    Deviation(("MASK-8",), "positions are numbers of int32, which overflow beside a bound of 2^31 - 1",
        "jax/window_overflow", OtherCall(_with_overflow),
        when=lambda arguments: arguments.get("window", (0,))[0] == _WIDEST),
)  # fmt: skip
#: Beside -2^15 the scores are rounded to 2^-9: hence 4 budgets.
_OF_CUDNN = (
    _DEVIATIONS[0],
    Deviation(("SCORE-3", "GRAD-1", "ERR-13"), "a scale of 0 or below gives NaN", "jax/cudnn_scale",
        Special(every_element), when=lambda arguments: arguments.get("scale", 1) <= 0),
    Deviation(("MASK-6", "MASK-4", "GRAD-10"),
        "a mask is a bias of -2^15 (float16) or -2^41 (bfloat16), so a row without a key attends to all",
        "jax/cudnn_mask_number", (
            OtherCall(lambda arguments: with_masked_rows_open(
                arguments, equal=arguments["query"].dtype != np.float16)), Bound(4)),
        when=lambda arguments: "mask" in arguments),
    Deviation(("MASK-8", "MASK-4", "MASK-6"), "a window that ends at the query has no end without is_causal",
        "jax/cudnn_window_end", OtherCall(lambda arguments: {
            **arguments, "window": (arguments["window"][0], None)}),
        when=lambda arguments: "window" in arguments and arguments["window"][1] == 0
        and not arguments.get("is_causal")),
    Deviation(("MASK-10",), "lengths of queries have no effect on one query", "jax/cudnn_query_lengths",
        OtherCall(lambda arguments: {name: x for name, x in arguments.items() if name != "query_lengths"}),
        when=lambda arguments: "query_lengths" in arguments and arguments["query"].shape[-2] == 1),
    Deviation(("MASK-8",), "a window of 2^31 keys or more is a number that XLA cannot write",
        "jax/cudnn_window_size", Raises("JaxRuntimeError", "sliding_window_length"),
        when=lambda arguments: "window" in arguments),
    mask_overflow("jax/bias_overflow", is_masked),
)  # fmt: skip

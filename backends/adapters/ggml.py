"""ggml: ``ggml_flash_attn_ext`` on the CPU, by the package ggml-python."""

import ctypes
from typing import Any

import ggml
import numpy as np
from numpy.typing import NDArray

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import (
    OF_NAN,
    Arguments,
    Rows,
    has_infinity,
    pairs_of,
    scores_of,
)
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import OtherCall, Special, row_elements
from attnspec.backends.user.function import describe

_TYPES = {"float16": ggml.GGML_TYPE_F16, "float32": ggml.GGML_TYPE_F32}


def flash_backend() -> Backend:
    """Run a graph of one operation. A mask has the type float16 there."""
    return describe(
        attention,
        name="ggml-flash",
        library="ggml-python",
        dtypes=["float32"],
        axes=4,
        mask_axes=4,
        given=["scale"],
        concurrent=False,
        deviations=_DEVIATIONS,
        versions=">=0.0.45,<0.0.46",
    )


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float,
    softcap: float | None = None,
    mask: Any = None,
    bias: Any = None,
    sinks: Any = None,
) -> Any:
    """Pass a mask, or a bias of float16, as the additive mask of float16."""
    _check(query, key, value)
    if mask is not None and bias is not None:
        raise Unsupported("ggml_flash_attn_ext takes one mask")
    if mask is not None and mask.dtype != bool:
        raise Unsupported(f"mask: expected booleans, got {mask.dtype}")
    if bias is not None and bias.dtype != np.float16:
        raise Unsupported(
            f"the mask of ggml_flash_attn_ext has the type float16, and the bias is {bias.dtype}"
        )
    if sinks is not None and (sinks.dtype != np.float32 or sinks.shape != query.shape[1:2]):
        raise Unsupported("the sinks have the type float32, one for each query head")
    added = bias if mask is None else np.where(mask, 0, -np.inf).astype(np.float16)
    if added is not None and any(
        of not in (1, all_) for of, all_ in zip(added.shape, query.shape[:2], strict=False)
    ):
        raise Unsupported("a mask that does not fit ends the process")
    size = sum(array.nbytes for array in (query, key, value))
    context = ggml.ggml_init(ggml.ggml_init_params(mem_size=2**24 + 8 * size, mem_buffer=None))
    try:
        inputs = [_tensor(context, array) for array in (query, key, value)]
        if added is not None:
            pairs = query.shape[2], key.shape[2]
            inputs.append(_tensor(context, broadcast(np, added, (*added.shape[:2], *pairs))))
        inputs += [None] * (4 - len(inputs))
        output = ggml.ggml_flash_attn_ext(context, *inputs, float(scale), 0.0, float(softcap or 0))
        if sinks is not None:
            ggml.ggml_flash_attn_ext_add_sinks(output, _tensor(context, sinks))
        graph = ggml.ggml_new_graph(context)
        ggml.ggml_build_forward_expand(graph, output)
        ggml.ggml_graph_compute_with_ctx(context, graph, 1)
        batch, heads, queries, _ = query.shape
        return _array(output, (batch, queries, heads, value.shape[3])).swapaxes(1, 2)
    finally:
        ggml.ggml_free(context)


def _check(query: Any, key: Any, value: Any) -> None:
    """Decline what ends the process by an assertion, which is how the library refuses it."""
    require_axes(4, query, key, value)
    (*_, batch, heads, _, depth), (*_, key_batch, key_heads, keys, _) = query.shape, key.shape
    fits = key.shape == (batch, key_heads, keys, depth) and value.shape[:3] == (key_batch, key_heads, keys)
    if {array.dtype.name for array in (query, key, value)} != {"float32"}:
        raise Unsupported("the queries have the type float32, and other types end the process")
    if 0 in (*query.shape, *key.shape, *value.shape) or not fits or heads % key_heads:
        raise Unsupported("shapes that do not fit, and empty axes, end the process")


def _tensor(context: Any, array: NDArray[Any]) -> Any:
    """Copy an array. The axes of ggml are in the opposite order."""
    sizes = (1,) * (4 - array.ndim) + array.shape
    tensor = ggml.ggml_new_tensor_4d(context, _TYPES[array.dtype.name], *reversed(sizes))
    array = np.ascontiguousarray(array)
    ctypes.memmove(ggml.ggml_get_data(tensor), array.ctypes.data, array.nbytes)
    return tensor


def _array(tensor: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    data = ctypes.cast(ggml.ggml_get_data(tensor), ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(data, shape=shape).copy()


def _has_infinite_sink(arguments: Arguments) -> bool:
    return "sinks" in arguments and bool(np.isneginf(arguments["sinks"]).any())


def _scores(arguments: Arguments) -> NDArray[np.float64]:
    """Return the scores, minus infinity where a mask disallows the key, which is skipped."""
    with np.errstate(invalid="ignore"):
        scores = scores_of(arguments) * arguments.get("scale", arguments["query"].shape[-1] ** -0.5)
    return np.where(pairs_of(arguments), scores, np.finfo(np.float64).min)


def _has_one_infinite(arguments: Arguments) -> NDArray[np.bool_]:
    """Find the rows with exactly one score of plus infinity and none of NaN."""
    scores = _scores(arguments)
    single = np.isposinf(scores).sum(axis=-1, keepdims=True) == 1
    return np.asarray(single & ~np.isnan(scores).any(axis=-1, keepdims=True))


def _with_infinite_keys(arguments: Arguments) -> Arguments:
    """Let a query with one score of plus infinity attend to its key alone, and no query to minus infinity."""
    scores = _scores(arguments)
    finite = {
        name: np.where(np.isfinite(arguments[name]), arguments[name], 0).astype(np.float32)
        for name in ("query", "key")
    }
    others = np.isfinite(scores) & pairs_of(arguments)
    mask = np.where(_has_one_infinite(arguments), np.isposinf(scores), others)
    return {**{name: x for name, x in arguments.items() if name != "bias" or x.any()}, **finite, "mask": mask}


def _rows_of_several(arguments: Arguments) -> Rows:
    scores = _scores(arguments)
    special = np.isnan(scores) | np.isposinf(scores)
    return np.asarray(special.any(axis=-1) & ~_has_one_infinite(arguments)[..., 0])


def _rows_of_minus_infinity_first(arguments: Arguments) -> Rows:
    """Find the rows whose first allowed score is minus infinity."""
    scores, allowed = _scores(arguments), pairs_of(arguments)
    first = np.argmax(allowed, axis=-1)[..., None]
    return np.asarray(np.isneginf(np.take_along_axis(scores, first, axis=-1))[..., 0])


def _rows_of_nothing(arguments: Arguments) -> Rows:
    sinks = np.isneginf(np.asarray(arguments["sinks"]))[:, None]
    return np.asarray(~pairs_of(arguments).any(axis=-1) & sinks)


def _softcap_elements(arguments: Arguments) -> dict[str, NDArray[np.bool_]]:
    """Mean every element if the softcap is not finite."""
    return {"output": np.asarray(not np.isfinite(arguments["softcap"]))}


def _without_softcap(arguments: Arguments) -> Arguments:
    return (
        {name: x for name, x in arguments.items() if name != "softcap"}
        if not arguments["softcap"]
        else arguments
    )


_DEVIATIONS = (
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN", "ggml/scale_not_finite",
        OF_NAN),
    Deviation(("SCORE-6",), "a softcap of 0 is none, and any other is accepted", "ggml/softcap_not_positive",
        (Special(_softcap_elements), OtherCall(_without_softcap))),
    Deviation(("NUM-14", "NUM-11"), "a row whose first score is minus infinity is NaN",
        "ggml/minus_infinite_first", Special(row_elements(_rows_of_minus_infinity_first)), when=has_infinity),
    Deviation(("NUM-11",), "a score of plus infinity gives the value of its key", "ggml/infinite_key",
        (Special(row_elements(_rows_of_several)), OtherCall(_with_infinite_keys)), when=has_infinity),
    Deviation(("SOFT-5",), "a sink of minus infinity in a row with nothing to attend to gives NaN",
        "ggml/minus_infinite_sink", Special(row_elements(_rows_of_nothing)), when=_has_infinite_sink),
)  # fmt: skip

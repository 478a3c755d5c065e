"""ncnn: the layer ``SDPA`` on the CPU, in float32."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import ncnn
import numpy as np

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import has_scale_of_zero, rows_not_finite, without
from attnspec.backends.adapters.deviations import bias_overflow
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import Unwritten, every_element, row_elements
from attnspec.backends.user.function import describe


def sdpa_backend() -> Backend:
    """Run a network of one layer. Its arrays have the axes heads, positions and depth."""
    return describe(
        attention,
        name="ncnn-sdpa",
        library="ncnn",
        dtypes=["float32"],
        loop=True,
        axes=3,
        mask_axes=3,
        bias_dtype="query",
        deviations=_DEVIATIONS,
        versions=">=1.0.20261020,<1.0.20261021",
    )


def attention(query: Any, key: Any, value: Any, *, scale: float | None = None, bias: Any = None) -> Any:
    """Pass a bias of one head or of all heads as ``attn_mask``."""
    require_axes(3, query, key, value)
    if any(array.dtype != np.float32 for array in (query, key, value)):
        raise Unsupported("expected arrays of float32, which is the type of the layer")
    if 0 in (*query.shape, *key.shape, *value.shape):
        raise Unsupported("a blob of ncnn has no axis of size 0")
    if len(query) < len(key):
        raise Unsupported("fewer query heads than key heads end the process")
    arrays = {"query": query, "key": key, "value": value}
    if bias is not None:
        pairs = query.shape[1], key.shape[1]
        arrays["mask"] = broadcast(np, bias, (len(bias), *pairs))
    network = _network(tuple(arrays), float(scale or 0))
    extractor = network.create_extractor()
    for name, array in arrays.items():
        rows = np.ascontiguousarray(array)  # a Mat does not keep its array alive
        extractor.input(name, ncnn.Mat(rows).clone())
    _, output = extractor.extract("output")
    return np.array(output).reshape(*query.shape[:2], value.shape[2])


@lru_cache(maxsize=64)
def _network(inputs: tuple[str, ...], scale: float) -> Any:
    """Load a network of one layer. In its parameters, 5 is whether there is a mask, and 6 the scale."""
    lines = [f"Input {name} 0 1 {name}" for name in inputs]
    lines.append(f"SDPA attention {len(inputs)} 1 {' '.join(inputs)} output 5={len(inputs) - 3} 6={scale:e}")
    network = ncnn.Net()
    network.opt.num_threads = 1
    head = ["7767517", f"{len(lines)} {len(inputs) + 1}"]
    if network.load_param_mem("\n".join([*head, *lines]) + "\n") or network.load_model_mem(b""):
        raise Unsupported("the network was not loaded")
    return network


def _is_not_finite(arguments: Mapping[str, Any]) -> bool:
    """Whether a query, a key or a bias has a NaN or an infinity."""
    arrays = (arguments.get(name) for name in ("query", "key", "bias"))
    return any(array is not None and not np.isfinite(array).all() for array in arrays)


_DEVIATIONS = (
    Deviation(("SHAPE-6", "HEAD-2", "ERR-15"), "inputs that do not fit are not refused", "ncnn/misfit",
        Unwritten(every_element)),
    Deviation(("SCORE-3", "MASK-4", "ERR-3", "ERR-13"), "a scale of 0 is no scale", "ncnn/scale_zero",
        without("scale"), when=has_scale_of_zero),
    bias_overflow("ncnn/bias_overflow"),
    Deviation(("NUM-11",), "a row with a score of NaN is numbers", "ncnn/nan_key",
        Unwritten(row_elements(rows_not_finite)), when=_is_not_finite),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "ncnn/scale_not_finite",
        without("scale")),
)  # fmt: skip

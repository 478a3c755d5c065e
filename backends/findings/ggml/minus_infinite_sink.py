"""ggml: a sink of minus infinity in a row with nothing to attend to gives NaN (SOFT-5).

Documentation: ggml.h says nothing of infinite sinks.

Found by: softmax-sink-empty-nothing-float32

Known: no thread found
"""

import ctypes

import ggml
import numpy as np

TYPES = {"float16": ggml.GGML_TYPE_F16, "float32": ggml.GGML_TYPE_F32}
context = ggml.ggml_init(ggml.ggml_init_params(mem_size=2**24, mem_buffer=None))


def tensor(array):
    sizes = (1,) * (4 - array.ndim) + array.shape
    made = ggml.ggml_new_tensor_4d(context, TYPES[array.dtype.name], *reversed(sizes))
    ctypes.memmove(ggml.ggml_get_data(made), array.ctypes.data, array.nbytes)
    return made


def attend(query, key, value, mask=None, sinks=None):
    """Attend with one head of depth 1, and return the numbers of the output."""
    arrays = [np.array(x, np.float32).reshape(1, 1, -1, 1) for x in (query, key, value)]
    mask = None if mask is None else tensor(np.array([[[mask]]], np.float16))
    output = ggml.ggml_flash_attn_ext(context, *map(tensor, arrays), mask, 1.0, 0.0, 0.0)
    if sinks is not None:
        ggml.ggml_flash_attn_ext_add_sinks(output, tensor(np.array(sinks, np.float32)))
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, output)
    ggml.ggml_graph_compute_with_ctx(context, graph, 1)
    data = ctypes.cast(ggml.ggml_get_data(output), ctypes.POINTER(ctypes.c_float))
    return [data[i] for i in range(len(query))]


mask = [-np.inf, -np.inf]
got = [attend([1], [0, 0], [1, 5], mask=mask, sinks=[sink])[0] for sink in (0.0, -np.inf)]
print("expected 0.0 and 0.0: no key is allowed")
print(f"got {got[0]} beside a sink of 0, {got[1]} beside a sink of minus infinity")
raise SystemExit(0 if got[0] == 0.0 and got[1] != got[1] else 1)

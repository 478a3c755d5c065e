"""ggml: a scale of NaN or infinity is accepted, and gives NaN (ERR-6).

Documentation: ggml.h says nothing of the scale of ggml_flash_attn_ext.

Found by: errors-scale-nan-float32

Known: no thread found
"""

import ctypes
import sys

import ggml
import numpy as np

TYPES = {"float16": ggml.GGML_TYPE_F16, "float32": ggml.GGML_TYPE_F32}
context = ggml.ggml_init(ggml.ggml_init_params(mem_size=2**24, mem_buffer=None))


def tensor(array):
    sizes = (1,) * (4 - array.ndim) + array.shape
    made = ggml.ggml_new_tensor_4d(context, TYPES[array.dtype.name], *reversed(sizes))
    ctypes.memmove(ggml.ggml_get_data(made), array.ctypes.data, array.nbytes)
    return made


def attend(query, key, value, mask=None, scale=1.0, softcap=0.0, sinks=None):
    """Attend with one head of depth 1, and return the numbers of the output."""
    arrays = [np.array(x, np.float32).reshape(1, 1, -1, 1) for x in (query, key, value)]
    mask = None if mask is None else tensor(np.array([[[mask]]], np.float16))
    output = ggml.ggml_flash_attn_ext(context, *map(tensor, arrays), mask, scale, 0.0, softcap)
    if sinks is not None:
        ggml.ggml_flash_attn_ext_add_sinks(output, tensor(np.array(sinks, np.float32)))
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, output)
    ggml.ggml_graph_compute_with_ctx(context, graph, 1)
    data = ctypes.cast(ggml.ggml_get_data(output), ctypes.POINTER(ctypes.c_float))
    return [data[i] for i in range(len(query))]


got = attend([1], [1, 0], [1, 5], scale=float("nan"))[0]
print("expected an error: the scale is NaN")
print(f"got {got}")
sys.exit(0 if np.isnan(got) else 1)

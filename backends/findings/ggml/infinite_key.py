"""ggml: a score of plus infinity gives the value of its key instead of NaN (NUM-11).

Documentation: ggml.h says nothing of infinite scores.

Found by: numerics-infinite-key-float32

Known: no thread found
"""

import ctypes

import ggml
import numpy as np

context = ggml.ggml_init(ggml.ggml_init_params(mem_size=2**24, mem_buffer=None))


def tensor(array):
    made = ggml.ggml_new_tensor_4d(context, ggml.GGML_TYPE_F32, *reversed(array.shape))
    ctypes.memmove(ggml.ggml_get_data(made), array.ctypes.data, array.nbytes)
    return made


def attend(query, key, value):
    """Attend with one head of depth 1, and return the numbers of the output."""
    arrays = [np.array(x, np.float32).reshape(1, 1, -1, 1) for x in (query, key, value)]
    output = ggml.ggml_flash_attn_ext(context, *map(tensor, arrays), None, 1.0, 0.0, 0.0)
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, output)
    ggml.ggml_graph_compute_with_ctx(context, graph, 1)
    data = ctypes.cast(ggml.ggml_get_data(output), ctypes.POINTER(ctypes.c_float))
    return [data[i] for i in range(len(query))]


got = attend([1], [0, float("inf")], [1, 5])[0]
print("expected nan: the score of the second key is infinite")
print(f"got {got}")
raise SystemExit(0 if got == 5.0 else 1)

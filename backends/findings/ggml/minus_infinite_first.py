"""ggml: a row whose first score is minus infinity is NaN (NUM-14).

Documentation: ggml.h says nothing of infinite scores.

Found by: numerics-minus-infinite-score-float32

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


got = [attend([1], keys, [1, 5])[0] for keys in ([0, -float("inf")], [-float("inf"), 0])]
print("expected 1.0 and 5.0: one key has a score of minus infinity, which gives it a weight of 0")
print(f"got {got[0]} if it is the second key, {got[1]} if it is the first")
raise SystemExit(0 if got[0] == 1.0 and got[1] != got[1] else 1)

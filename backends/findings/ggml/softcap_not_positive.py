"""ggml: a softcap of 0 is none, one below 0 is accepted, and NaN gives NaN (SCORE-6).

Documentation: ggml.h says nothing of the argument logit_softcap.

Found by: scores-misuse-softcap-zero-float32

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


def attend(query, key, value, softcap=0.0):
    """Attend with one head of depth 1, and return the numbers of the output."""
    arrays = [np.array(x, np.float32).reshape(1, 1, -1, 1) for x in (query, key, value)]
    output = ggml.ggml_flash_attn_ext(context, *map(tensor, arrays), None, 1.0, 0.0, softcap)
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, output)
    ggml.ggml_graph_compute_with_ctx(context, graph, 1)
    data = ctypes.cast(ggml.ggml_get_data(output), ctypes.POINTER(ctypes.c_float))
    return [data[i] for i in range(len(query))]


got = [attend([1], [9, 0], [1, 5], softcap=softcap)[0] for softcap in (0.0, 1.0, -1.0, float("nan"))]
print("expected errors for softcaps of 0, -1 and NaN")
print("got {:.4f} with 0, {:.4f} with 1, {:.4f} with -1 and {} with NaN".format(*got))
raise SystemExit(0 if got[0] < got[1] == got[2] and got[3] != got[3] else 1)

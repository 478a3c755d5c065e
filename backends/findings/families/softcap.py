"""A softcap that is not positive is accepted, or a softcap limits the bias as well.

A softcap of 0 or below has no meaning, and is taken as none. A softcap that is applied after the bias
also limits a bias of minus infinity: it disallows nothing any more.
"""

import calls
import numpy as np
from table import ERROR, Row, show

NAN = float("nan")
#: Two keys with scores of 9 and 0 and values of 1 and 5.
PEAKED = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((1,), (9, 0), (1, 5))]
ONES = [np.ones((1, 1, 2, 8), np.float32)] * 3
ZEROS = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((0,), (0, 0), (1, 5))]
BIAS = np.array([[[[0, -np.inf]]]], np.float32)


def _row(name, call, run, got):
    return Row(name, "SCORE-6", call, run, got, ERROR)


ROWS = (
    _row("ggml/softcap_not_positive", "ggml_flash_attn_ext, 0 is none", lambda: calls.ggml(*PEAKED),
        1.0004935),
    _row("ggml/softcap_not_positive", "ggml_flash_attn_ext, -1 is 1",
        lambda: calls.ggml(*PEAKED, softcap=-1.0), 2.0758),
    _row("ggml/softcap_not_positive", "ggml_flash_attn_ext, NaN", lambda: calls.ggml(*PEAKED, softcap=NAN),
        np.nan),
    _row("onnx/softcap_not_positive", "Attention of the reference evaluator, -1",
        lambda: calls.onnx(*ONES, softcap=-1.0), 1.0),
    _row("onnxruntime/softcap_not_positive", "Attention, -1", lambda: calls.ort(*ONES, softcap=-1.0), 1.0),
    _row("onnxruntime/float64_not_checked", "Attention in float64, -1 is 1",
        lambda: calls.ort(*[array.astype(np.float64) for array in PEAKED], softcap=-1.0), 2.0758),
    _row("onnxruntime/gqa_softcap_not_positive", "GroupQueryAttention, -1",
        lambda: calls.ort_gqa(*ONES, softcap=-1.0), 1.0),
    _row("tokamax/not_checked", "dot_product_attention on XLA, 0",
        lambda: calls.tokamax(*ONES, logits_soft_cap=0.0), 1.0),
    Row("tokamax/softcap_after_bias", "MASK-2, SCORE-5",
        "dot_product_attention on XLA, 0.5 beside a bias of -inf, as documented",
        lambda: calls.tokamax(*ZEROS, bias=BIAS, logits_soft_cap=0.5), 2.510, 1.0),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)

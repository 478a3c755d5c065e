"""`is_causal` has no effect, or a mask beside it has none, and nothing tells the caller.

A query then attends to later keys. In training the model sees what it should predict.
"""

import calls
import numpy as np
from table import Row, show

#: Equal keys with values of 1 and 5: the causal output is 1 and 3.
ARRAYS = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((0, 0), (0, 0), (1, 5))]
ALL, SECOND = np.ones((1, 1, 2, 2), bool), np.array([[[[True, True], [False, True]]]])


def _paddle():
    return calls.paddle(*ARRAYS, attn_mask=SECOND, is_causal=True)


def _one_query():
    return calls.transformers_sdpa(ARRAYS[0][:, :, :1], *ARRAYS[1:], is_causal=True)


_KNOWN = "https://github.com/huggingface/transformers/issues/37807"
ROWS = (
    Row("paddle/mask_and_causal", "MASK-4",
        "scaled_dot_product_attention on the CPU, a mask of key 1 for query 1, which the page excludes",
        _paddle, [1.0, 3.0], [1.0, 5.0]),
    Row("transformers/eager_is_causal", "ERR-3", "eager_attention_forward, is_causal=True",
        lambda: calls.transformers_eager(*ARRAYS, is_causal=True), [3.0, 3.0], [1.0, 3.0]),
    Row("transformers/sdpa_mask_and_causal", "MASK-4",
        "sdpa_attention_forward, is_causal=True beside a mask of all keys",
        lambda: calls.transformers_sdpa(*ARRAYS, mask=ALL, is_causal=True), [3.0, 3.0], [1.0, 3.0],
        known=_KNOWN),
    Row("transformers/sdpa_one_query", "MASK-3",
        "sdpa_attention_forward, is_causal=True with one query and two keys", _one_query, 3.0, 1.0,
        known=_KNOWN),
    Row(
        "x-transformers/flash_more_queries",
        "MASK-3",
        "Attend with flash, causal, three queries and two keys: without flash the last is at the last key",
        lambda: calls.x_transformers(
            np.repeat(ARRAYS[0][:, :, :1], 3, 2), *ARRAYS[1:], causal=True, flash=True
        ),
        [1.0, 3.0, 3.0],
        [3.0, 1.0, 3.0],
        rank="paths",
    ),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)

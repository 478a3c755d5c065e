"""A bias or a mask of the lowest finite numbers gives weight to a key that a mask disallows, or gives NaN.

Disallowed scores are replaced by a large negative number, and not removed. A bias of allowed keys can be
as low, because code that has no minus infinity masks with the lowest number of the dtype, too.
"""

import calls
import numpy as np
from table import Row, show

LOWEST = np.finfo(np.float32).min
ZEROS = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((0,), (0, 0), (1, 5))]
BIAS, MASK = np.full((1, 1, 1, 2), LOWEST), np.array([[[[True, False]]]])


def _row(name, call, attend, got, right=1.0, **options):
    return Row(name, "MASK-5", call, lambda: attend(*ZEROS, **options), got, right)


def _transformers(*arrays):
    return calls.transformers_sdpa(*arrays, mask=MASK, position_bias=BIAS)


ROWS = (
    _row("flax/masked_lowest", "linen.dot_product_attention, bias and mask", calls.linen, 3.0, bias=BIAS,
        mask=MASK),
    _row("flax/masked_lowest", "nnx.dot_product_attention, bias and mask", calls.nnx, 5.0, bias=BIAS,
        mask=MASK),
    _row("iree/lowest_bias", "iree_linalg_ext.attention, a mask of the lowest", calls.iree, np.nan, 3.0,
        mask=BIAS[0]),
    _row("jax/bias_below_fill", "jax.nn.dot_product_attention, bias and mask", calls.jax_nn, 5.0, bias=BIAS,
        mask=MASK),
    _row("keras/masked_lowest", "ops.dot_product_attention on NumPy, a bias of -3e38 and a mask", calls.keras,
        5.0, bias=np.full_like(BIAS, -3e38), mask=MASK),
    _row("tokamax/masked_lowest", "dot_product_attention on XLA, bias and mask", calls.tokamax, 3.0,
        bias=BIAS, mask=MASK),
    _row("transformers/masked_lowest", "sdpa_attention_forward, position_bias and mask", _transformers, 3.0),
    _row("x-transformers/masked_lowest", "Attend, attn_bias and mask", calls.x_transformers, 3.0,
        attn_bias=BIAS, mask=MASK),
    _row("x-transformers/flash_masked_lowest", "Attend with flash, attn_bias and mask", calls.x_transformers,
        5.0, attn_bias=BIAS, mask=MASK, flash=True),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)

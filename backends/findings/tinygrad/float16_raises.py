"""tinygrad, scaled_dot_product_attention: on the device PYTHON, float16 raises an error from 16 keys on
(SOFT-3).

Rank: difference
Impact: float16 cannot be tested on this device.
Documentation: the device PYTHON runs each kernel, and float16 is a dtype of it.
"""

import os

os.environ.setdefault("DEV", "PYTHON")
from tinygrad import Tensor, dtypes

got = []
for keys in (15, 16, 64):
    x = Tensor.ones(1, 1, keys, 4, dtype=dtypes.float16)
    try:
        got.append(str(x.scaled_dot_product_attention(x, x).numpy().shape))
    except RuntimeError as error:
        got.append(f"RuntimeError: {str(error)[:40]}")
print("expected three results")
print("got " + "; ".join(got))
raise SystemExit(0 if any("RuntimeError" in text for text in got) else 1)

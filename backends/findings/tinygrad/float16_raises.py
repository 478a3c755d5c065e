"""tinygrad: on the device PYTHON, float16 raises an error from 16 keys on (SOFT-3).

Documentation: the device PYTHON runs each kernel, and float16 is a dtype of it.

Found by: masking-tile-without-an-allowed-key-mask-and-first-1-float16

Known: no thread found
"""

import os
import sys

os.environ.setdefault("DEV", "PYTHON")
from tinygrad import Tensor, dtypes

shapes = []
try:
    for keys in (15, 16, 64):
        x = Tensor.ones(1, 1, keys, 4, dtype=dtypes.float16)
        shapes.append(x.scaled_dot_product_attention(x, x).numpy().shape)
    print("expected three results")
except RuntimeError as error:
    print("expected three results")
    print(f"got {len(shapes)}, and RuntimeError: {str(error)[:40]}")
    sys.exit(0)
print(f"got {shapes}")
sys.exit(1)

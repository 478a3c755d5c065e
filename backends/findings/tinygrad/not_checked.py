"""tinygrad: one value head for two key heads, and a depth of 0, are accepted (HEAD-2) (SHAPE-6) (ERR-5).

Documentation: scaled_dot_product_attention says nothing of either.

Found by: heads-misuse-value-float32

Known: no thread found
"""

import os

os.environ.setdefault("DEV", "PYTHON")
from tinygrad import Tensor

query, key, value = Tensor.ones(1, 2, 1, 4), Tensor.ones(1, 2, 3, 4), Tensor.ones(1, 1, 3, 4)
none = Tensor.ones(1, 2, 1, 0)
got = [
    query.scaled_dot_product_attention(key, value, enable_gqa=True).numpy().shape,
    none.scaled_dot_product_attention(none, query).numpy().shape,
]
print("expected errors")
print("got shapes", *got)
raise SystemExit(0 if got == [(1, 2, 1, 4), (1, 2, 1, 4)] else 1)

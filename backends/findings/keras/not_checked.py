"""Keras: arguments are not checked (ERR-2) (ERR-4) (ERR-5) (ERR-6) (HEAD-2).

Documentation: keras.ops.dot_product_attention says that the mask is boolean and the values have the
shape of the keys, and nothing of the rest.

Found by: errors-integers-int64

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "numpy"
import numpy as np
from keras.ops import dot_product_attention as attend

ones, none = np.ones((1, 2, 1, 1), np.float32), np.ones((1, 2, 1, 0), np.float32)
calls = {
    "integers": lambda: attend(*[np.ones((1, 2, 1, 1), np.int32)] * 3),
    "a mask of numbers": lambda: attend(ones, ones, ones, mask=np.ones((1, 1, 2, 2), np.float32)),
    "a depth of 0": lambda: attend(none, none, none),
    "a scale of nan": lambda: attend(ones, ones, ones, scale=float("nan")),
    "one head of values": lambda: attend(*[np.ones((1, 2, 2, 1), np.float32)] * 2, ones),
}
for call in calls.values():
    call()
print(f"expected an error for {', '.join(calls)}")
print(f"got no error for {', '.join(calls)}")

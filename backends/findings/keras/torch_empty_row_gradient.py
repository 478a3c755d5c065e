"""Keras, PyTorch: a query that may attend to nothing has gradients (GRAD-10).

Documentation: keras.ops.dot_product_attention says nothing. The mask is a large negative number, which
is added.

Found by: gradients-empty-row-float32

Known: no thread found
"""

import os

os.environ["KERAS_BACKEND"] = "torch"
import torch
from keras.ops import dot_product_attention as attend

query = torch.ones(1, 1, 1, 1, requires_grad=True)
keys = torch.tensor([1.0, 5.0]).view(1, 2, 1, 1)
attend(query, keys, keys, mask=torch.zeros(1, 1, 1, 2, dtype=torch.bool)).sum().backward()
got = query.grad.item()
print("expected 0.0")
print(f"got {got}")
raise SystemExit(0 if got == 8.0 else 1)

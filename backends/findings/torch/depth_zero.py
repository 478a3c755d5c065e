"""PyTorch: a depth of 0 is accepted. Its default scale is 1 / 0 (ERR-5)."""

import sys

import torch

attend = torch.nn.functional.scaled_dot_product_attention

none = torch.ones(1, 1, 2, 0)
try:
    got = tuple(attend(none, none, none).shape)
except (RuntimeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, tuple) else 1)

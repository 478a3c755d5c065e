"""PyTorch: integers of uint16, uint32 and uint64 are not compared with those of int64 (ERR-1).

Rank: difference
Impact: a function with lengths or segment ids of such a dtype raises an error.
Documentation: Nothing in the docstring of `torch.eq` excepts a dtype.
data-apis/array-api-tests#265 reports the error.
"""

import torch

expected = [True, False]
try:
    got = str((torch.tensor([0, 1]) == torch.tensor([0, 2], dtype=torch.uint64)).tolist())
except RuntimeError as error:
    got = str(error).partition(",")[0]
print(f"expected {expected}, as NumPy gives")
print(f"got {got}")
raise SystemExit(0 if got != str(expected) else 1)

"""PyTorch: five keys and values without positions give 0 (SHAPE-6).

Documentation: The docstring of `scaled_dot_product_attention` gives keys and values the same length `S`.

Found by: notation, misfits: no positions of value

Known: no thread found that mentions values without positions. The finding about fewer keys than values
links one about different lengths.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

query, key, value = (torch.ones(1, 1, count, 4) for count in (2, 5, 0))
got = attend(query, key, value).flatten().tolist()
print("expected an error")
print(f"got {got}")

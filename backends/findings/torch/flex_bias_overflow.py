"""PyTorch: flex_attention gives NaN for a bias of -inf on an infinite score (MASK-12).

Documentation: The docstring of `flex_attention` says that `score_mod` changes the computed scores. It
does not mention infinite scores.

Found by: masking, finite garbage: bias and largest

Known: no thread found
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

query, key = torch.ones(1, 1, 1, 4), torch.ones(1, 1, 3, 4)
key[..., 2, :] = 3e38  # disallowed; its product with the query overflows
bias = torch.tensor([0.0, 0.0, -torch.inf])


def add_bias(score, _batch, _head, _query, key_position):
    return score + bias[key_position]


got = flex_attention(query, key, torch.ones(1, 1, 3, 4), score_mod=add_bias).flatten()
print("expected [1.0, 1.0, 1.0, 1.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if got.isnan().any() else 1)

"""Transformers, YaRN: truncate has no effect in a model with several types of layers (POS-21).

Rank: promise
Impact: a model with several types of layers runs with other frequencies than its configuration says.
Promise: "truncate: Whether to truncate the correction range" (docstring of _compute_yarn_parameters)
"""

from types import SimpleNamespace

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def frequencies(truncate, layer):
    own = {"rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096}
    own |= {"rope_type": "yarn", "truncate": truncate}
    config = SimpleNamespace(
        rope_parameters={layer: own} if layer else own,
        head_dim=64,
        hidden_size=64,
        num_attention_heads=1,
        max_position_embeddings=131072,
        standardize_rope_params=lambda: None,
    )
    config.per_layer_config = {layer: config}
    return ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"), layer_type=layer)[0]


alone = frequencies(False, None) - frequencies(True, None)
of_a_type = frequencies(False, "full_attention") - frequencies(True, "full_attention")
print(f"expected truncate to change a frequency by {alone.abs().max():.2e}, as with one type of layers")
print(f"got a change of {of_a_type.abs().max():.2e}")
raise SystemExit(0 if alone.abs().max() > 1e-4 and of_a_type.abs().max() == 0 else 1)

"""Tokamax, XLA: arguments are not checked (ERR-4) (ERR-5) (ERR-6) (ERR-8) (SCORE-6).

Documentation: tokamax.dot_product_attention says nothing.

Found by: errors-scale-nan-float32

Known: no thread found
"""

import jax.numpy as jnp
from tokamax import dot_product_attention as attend

ones, none = jnp.ones((1, 2, 1, 1)), jnp.ones((1, 2, 1, 0))
calls = {
    "a mask of numbers": lambda: attend(ones, ones, ones, mask=jnp.ones((1, 1, 2, 2)), implementation="xla"),
    "values of depth 0": lambda: attend(ones, ones, none, implementation="xla"),
    "a scale of nan": lambda: attend(ones, ones, ones, scale=float("nan"), implementation="xla"),
    "a softcap of 0": lambda: attend(ones, ones, ones, logits_soft_cap=0.0, implementation="xla"),
    "lengths of numbers with a fraction": lambda: attend(
        ones, ones, ones, key_value_seq_lengths=jnp.ones(1), implementation="xla"
    ),
}
for call in calls.values():
    call()
print(f"expected an error for {', '.join(calls)}")
print(f"got no error for {', '.join(calls)}")

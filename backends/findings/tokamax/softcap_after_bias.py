"""Tokamax: beside a softcap a bias of minus infinity disallows nothing (MASK-2, SCORE-5 variant after-bias).

Documentation: dot_product_attention says that a softcap applies to the sum of product and bias.

Found by: scores-softcap-bias-masked-float32

Known: no thread found
"""

import jax.numpy as jnp
import tokamax

zeros, values = jnp.zeros((1, 2, 1, 1)), jnp.array([1.0, 5.0]).reshape(1, 2, 1, 1)
bias = jnp.array([0.0, -jnp.inf]).reshape(1, 1, 1, 2)
got = [
    float(
        tokamax.dot_product_attention(
            zeros[:, :1], zeros, values, bias=bias, logits_soft_cap=softcap, implementation="xla"
        ).ravel()[0]
    )
    for softcap in (None, 0.5)
]
print("expected 1.0: the second key is disallowed")
print(f"got {got[0]} without a softcap, and {got[1]:.3f} with a softcap of 0.5")
raise SystemExit(0 if got[0] == 1.0 and got[1] > 2 else 1)

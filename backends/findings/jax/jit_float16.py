"""JAX, jax.nn.dot_product_attention: attention in float16 raises under jit on a CPU, and works without it
(NUM-5).

Rank: paths
Impact: code that works eagerly on a CPU fails once it is compiled.
Documentation: The docstring of `jax.nn.dot_product_attention` does not say which dtypes the implementation
`xla` supports.
Known: https://github.com/keras-team/keras-hub/pull/2354 works around it. No thread in the project of JAX
was found.
"""

import jax
import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

one = jnp.ones((1, 2, 1, 4), jnp.float16)
plain = attend(one, one, one).dtype
try:
    got = jax.jit(attend)(one, one, one).dtype
except ValueError as error:
    got = error
print(f"expected {plain}, as without jit")
print(f"got {got!r}")
raise SystemExit(0 if isinstance(got, ValueError) else 1)

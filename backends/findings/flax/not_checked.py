"""Flax: arguments are not checked (ERR-2) (ERR-4) (ERR-5) (ERR-15).

Documentation: flax.linen.dot_product_attention and flax.nnx.dot_product_attention say that bias and mask
broadcast to [batch..., num_heads, q_length, kv_length], and nothing of the rest.

Found by: errors-booleans-bool

Known: no thread found
"""

import jax.numpy as jnp
from flax.linen import dot_product_attention as attend

ones, none = jnp.ones((1, 2, 1, 1)), jnp.ones((1, 2, 1, 0))
calls = {
    "integers": lambda: attend(*[jnp.ones((1, 2, 1, 1), "int32")] * 3),
    "a mask of numbers": lambda: attend(ones, ones, ones, mask=jnp.ones((1, 1, 2, 2))),
    "a depth of 0": lambda: attend(none, none, none),
    "a bias of five axes": lambda: attend(ones, ones, ones, bias=jnp.ones((2, 1, 1, 2, 2))),
}
for call in calls.values():
    call()
print(f"expected an error for {', '.join(calls)}")
print(f"got no error for {', '.join(calls)}")

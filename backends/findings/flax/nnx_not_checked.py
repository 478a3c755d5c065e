"""Flax, NNX: arguments are not checked (ERR-2) (ERR-4) (ERR-5).

Documentation: flax.nnx.dot_product_attention says nothing.

Found by: errors-refused-query-of-integers-1-int32

Known: no thread found
"""

import jax.numpy as jnp
from flax.nnx import dot_product_attention as attend

ones, none = jnp.ones((1, 2, 1, 1)), jnp.ones((1, 2, 1, 0))
calls = {
    "integers": lambda: attend(*[jnp.ones((1, 2, 1, 1), "int32")] * 3),
    "a mask of numbers": lambda: attend(ones, ones, ones, mask=jnp.ones((1, 1, 2, 2))),
    "a depth of 0": lambda: attend(none, none, none),
}
for call in calls.values():
    call()
print(f"expected an error for {', '.join(calls)}")
print(f"got no error for {', '.join(calls)}")

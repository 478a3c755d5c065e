"""Paddle: arguments are not checked (ERR-2) (ERR-5) (ERR-6) (ERR-15) (HEAD-2).

Documentation: paddle.nn.functional.scaled_dot_product_attention says that mask and scores have the same
dtype and broadcast to (B, H, L, S), and nothing of the rest.

Found by: errors-refused-query-of-integers-1-int32

Known: no thread found
"""

import paddle
from paddle.nn.functional import scaled_dot_product_attention as attend

ones = paddle.ones((1, 2, 1, 1))
none, axes = paddle.ones((1, 2, 1, 0)), paddle.zeros((2, 1, 1, 2, 2))
calls = {
    "integers": lambda: attend(*[paddle.ones((1, 2, 1, 1), "int32")] * 3),
    "a depth of 0": lambda: attend(none, none, none),
    "a scale of nan": lambda: attend(ones, ones, ones, scale=float("nan")),
    "a bias of five axes": lambda: attend(ones, ones, ones, attn_mask=axes),
    "no key heads": lambda: attend(ones, *[paddle.ones((1, 2, 0, 1))] * 2),
}
for call in calls.values():
    call()
print(f"expected an error for {', '.join(calls)}")
print(f"got no error for {', '.join(calls)}")

"""A query that may attend to nothing has gradients, or makes gradients of other queries NaN.

A loss that leaves the row out still trains on it. NaN reaches all keys of the head, and with them all
weights. A bias of -inf has NaN, and a large negative number moves every value by 1 / S.
"""

from importlib import import_module

import calls
import numpy as np
from table import Row, show

ONES = [np.ones((1, 1, 2, 1), np.float32)] * 3
#: Query 0 may attend to nothing, and query 1 to all.
BIAS = np.array([[[[-np.inf, -np.inf], [0, 0]]]], np.float32)
#: One query, keys and values of 1 and 5.
ONE = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((1,), (1, 5), (1, 5))]


def _gradient(attend, arrays, argument, **options):
    """Differentiate the sum of the output of a function of JAX, whose heads follow the positions."""
    import jax

    arrays = [jax.numpy.swapaxes(jax.numpy.asarray(array), 1, 2) for array in arrays]
    options = {name: jax.numpy.asarray(each) for name, each in options.items()}
    return np.asarray(jax.grad(lambda *x: attend(*x, **options).sum(), argument)(*arrays))


def _jax(argument, arrays=ONES, **options):
    import jax

    return _gradient(jax.nn.dot_product_attention, arrays, argument, **options)


def _flax(module):
    attend = import_module(f"flax.{module}").dot_product_attention
    return _gradient(attend, ONES, 0, bias=BIAS)


def _tokamax():
    from functools import partial

    from tokamax import dot_product_attention

    return _gradient(partial(dot_product_attention, implementation="xla"), ONES, 0, bias=BIAS)


def _keras_torch():
    """Call the function of the backend PyTorch."""
    import torch
    from keras.src.backend.torch.nn import dot_product_attention

    query = torch.ones(1, 1, 1, 1, requires_grad=True)
    keys = torch.tensor([1.0, 5.0]).view(1, 2, 1, 1)
    dot_product_attention(query, keys, keys, mask=torch.zeros(1, 1, 1, 2, dtype=torch.bool)).sum().backward()
    return query.grad.numpy()


def _mha():
    arrays = [
        np.random.default_rng(0).normal(size=(1, 1, count, 4)).astype(np.float32) for count in (2, 3, 3)
    ]
    mask = np.array([[True] * 3, [False] * 3])
    return str(bool(np.isnan(calls.torch_mha(*arrays, grad=True, attn_mask=mask)).all()))


def _transformers(mask, arrays):
    return calls.transformers_eager(*arrays, grad=True, mask=mask)


def _row(name, call, run, got, right=0.0, known=""):
    return Row(name, "GRAD-10", call, run, got, right, known=known)


_NAN_THEN_ZERO, _ZEROS = [np.nan, 0.0], [0.0, 0.0]
ROWS = (
    _row("flax/empty_row_gradient_bias", "linen.dot_product_attention, bias: of queries",
        lambda: _flax("linen"), _NAN_THEN_ZERO, _ZEROS),
    _row("flax/empty_row_gradient_bias", "nnx.dot_product_attention, bias: of queries", lambda: _flax("nnx"),
        _NAN_THEN_ZERO, _ZEROS),
    _row("jax/empty_row_gradient_bias", "jax.nn.dot_product_attention, bias: of values",
        lambda: _jax(2, bias=BIAS), np.nan, 0.5),
    _row("jax/empty_row_gradient_mean", "jax.nn.dot_product_attention, mask: of values",
        lambda: _jax(2, ONE, mask=np.zeros((1, 1, 1, 2), bool)), 0.5),
    _row("keras/torch_empty_row_gradient", "ops.dot_product_attention on PyTorch, mask: of queries",
        _keras_torch, 8.0),
    _row("tokamax/empty_row_gradient_bias", "dot_product_attention on XLA, bias: of queries", _tokamax,
        _NAN_THEN_ZERO, _ZEROS),
    _row("torch/mha_empty_row_gradient",
        "MultiheadAttention with weights, attn_mask: whether all of keys are NaN", _mha, "True", "False",
        known="https://github.com/pytorch/pytorch/issues/41508"),
    _row("transformers/eager_empty_row_gradient",
        "eager_attention_forward, a mask of the lowest number: of queries",
        lambda: _transformers(np.full((1, 1, 1, 2), np.finfo(np.float32).min), ONE), 4.0),
    _row("transformers/eager_nan_gradient", "eager_attention_forward, a mask of -inf: of queries",
        lambda: _transformers(BIAS, ONES), _NAN_THEN_ZERO, _ZEROS),
    _row("x-transformers/empty_row_gradient_bias", "Attend, attn_bias: of queries",
        lambda: calls.x_transformers(*ONES, attn_bias=BIAS, grad=True), _NAN_THEN_ZERO, _ZEROS),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)

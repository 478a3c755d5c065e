"""An argument of a type or a range that has no meaning is accepted.

Integers are converted or truncated, a mask of numbers is read as booleans or added, and a mistake in the
call of a function stays unnoticed.
"""

import calls
import numpy as np
from table import ERROR, Row, show

NAN = float("nan")
ONES = [np.ones((1, 1, 2, 1), np.float32)] * 3
INTEGERS = [np.ones((1, 1, 2, 1), np.int32)] * 3
NUMBERS = np.ones((1, 1, 2, 2), np.float32)
#: A mean of 1.5, and one of 6, from integers.
MEAN = [np.array(rows).reshape(1, 1, -1, 1) for rows in ((0,), (0, 0), (1, 2))]
SIX = [np.array(rows, np.int32).reshape(1, 1, -1, 1) for rows in ((0,), (0, 0), (6, 6))]
#: Equal keys with values of 0 and 1: a mask of the first gives 0.
ZEROS = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((0,), (0, 0), (0, 1))]
FIRST = np.array([[[[True, False]]]])


def _row(name, rules, call, run, got=1.0):
    return Row(name, rules, call, run, got, ERROR)


def _integer_key(attend):
    key = np.ones((1, 1, 2, 8), np.int32)
    return attend(np.ones((1, 1, 2, 8), np.float32), key, np.ones((1, 1, 2, 8), np.float32))


def _lengths():
    return calls.tokamax(*ONES, key_value_seq_lengths=np.ones(1, np.float32))


def _executorch():
    """Add a mask of integers. The result varies: its bytes are read as something else."""
    mask = np.ones((2, 2), np.int32)
    calls.executorch(*[np.ones((1, 1, 2, 4), np.float32)] * 3, mask=mask)
    return "a result"


def _probability(value):
    """Call the math path, which values of another depth select."""
    query, key = np.zeros((1, 1, 1, 4), np.float32), np.ones((1, 1, 2, 4), np.float32)
    return calls.torch_sdpa(query, key, ZEROS[2], dropout_p=value)


def _rotary():
    """Take position -1 of a table of three positions whose cosines are 1, 2 and 3."""
    from onnx.parser import parse_model
    from onnx.reference import ReferenceEvaluator

    model = parse_model("""<ir_version: 10, opset_import: ["" : 23]>
        g (float[1,1,1,2] X, float[3,1] C, float[3,1] S, int64[1,1] P) => (float[1,1,1,2] Y) {
        Y = RotaryEmbedding(X, C, S, P) }""")
    cosines = np.array([[1], [2], [3]], np.float32)
    values = {"X": np.ones((1, 1, 1, 2), np.float32), "C": cosines, "S": 0 * cosines, "P": np.array([[-1]])}
    return ReferenceEvaluator(model).run(None, values)[0]


_KERAS, _LINEN, _NNX = (
    "ops.dot_product_attention on NumPy",
    "linen.dot_product_attention",
    "nnx.dot_product_attention",
)
ROWS = (
    _row("equinox/not_checked", "ERR-4", "nn.MultiheadAttention, a mask of numbers",
        lambda: calls.equinox(*ONES, mask=NUMBERS[0, 0])),
    _row("equinox/not_checked", "ERR-2", "nn.MultiheadAttention, complex numbers",
        lambda: calls.equinox(*[array.astype(np.complex64) for array in ONES]).real),
    _row("executorch/not_checked", "ERR-2", "llama.custom_sdpa, a mask of integers", _executorch, "a result"),
    _row("flax/not_checked", "ERR-2", f"{_LINEN}, integers", lambda: calls.linen(*INTEGERS)),
    _row("flax/not_checked", "ERR-4", f"{_LINEN}, a mask of numbers",
        lambda: calls.linen(*ONES, mask=NUMBERS)),
    _row("flax/nnx_not_checked", "ERR-2", f"{_NNX}, integers", lambda: calls.nnx(*INTEGERS)),
    _row("flax/nnx_not_checked", "ERR-4", f"{_NNX}, a mask of numbers",
        lambda: calls.nnx(*ONES, mask=NUMBERS)),
    _row("jax/bias_of_booleans", "ERR-2", "jax.nn.dot_product_attention, a mask as the bias",
        lambda: calls.jax_nn(*ZEROS, bias=FIRST), 0.2689414),
    _row("jax/not_floating_point", "ERR-2", "jax.nn.dot_product_attention, integers whose mean is 6",
        lambda: calls.jax_nn(*SIX), 0.0),
    _row("jax/window_not_checked", "ERR-7", "jax.nn.dot_product_attention, a window of (-1, 0)",
        lambda: calls.jax_nn(*ONES, local_window_size=(-1, 0))),
    _row("keras/not_checked", "ERR-2", f"{_KERAS}, integers", lambda: calls.keras(*INTEGERS), 0.0),
    _row("keras/not_checked", "ERR-4", f"{_KERAS}, a mask of numbers",
        lambda: calls.keras(*ONES, mask=NUMBERS)),
    _row("mlx/integers", "ERR-2", "fast.scaled_dot_product_attention, keys of integers",
        lambda: _integer_key(calls.mlx)),
    _row("onnx/integers", "ERR-2", "Attention of the reference evaluator, keys of integers",
        lambda: _integer_key(calls.onnx)),
    _row("onnx/rotary_negative_position", "POS-13", "RotaryEmbedding of the reference evaluator, -1", _rotary,
        3.0),
    _row("paddle/not_checked", "ERR-2", "scaled_dot_product_attention, integers",
        lambda: calls.paddle(*INTEGERS)),
    _row("tokamax/not_checked", "ERR-4", "dot_product_attention on XLA, a mask of numbers",
        lambda: calls.tokamax(*ONES, mask=NUMBERS)),
    _row("tokamax/not_checked", "ERR-8", "dot_product_attention on XLA, lengths with a fraction", _lengths),
    _row("torch/dropout_p_not_checked", "DROP-12", "scaled_dot_product_attention, dropout_p=-0.25",
        lambda: _probability(-0.25), 0.5),
    _row("torch/dropout_p_not_checked", "DROP-12", "scaled_dot_product_attention, dropout_p=NaN",
        lambda: _probability(NAN), 0.5),
    _row("torch/flex_integers", "ERR-2", "flex_attention, integers whose mean is 1.5",
        lambda: calls.torch_flex(*MEAN), 0.0),
    _row("transformers/eager_not_checked", "ERR-2", "eager_attention_forward, a mask of integers",
        lambda: calls.transformers_eager(*ONES, mask=np.zeros((1, 1, 2, 2), np.int32))),
    _row("diffusers/not_checked", "ERR-6", "AttnProcessor, scale=NaN",
        lambda: calls.diffusers(*ONES, scale=NAN), NAN),
    _row("x-transformers/not_checked", "ERR-6", "Attend, scale=NaN",
        lambda: calls.x_transformers(*ONES, scale=NAN), NAN),
    _row("x-transformers/not_checked", "SCORE-6", "Attend, logit_softclamp_value=inf",
        lambda: calls.x_transformers(*ONES, softclamp_logits=True, logit_softclamp_value=float("inf")), NAN),
    _row("x-transformers/not_checked", "ERR-2", "Attend, attn_bias of integers",
        lambda: calls.x_transformers(*ONES, attn_bias=NUMBERS.astype(np.int32))),
    _row("x-transformers/not_checked", "ERR-5", "Attend, values of depth 0",
        lambda: calls.x_transformers(*ONES[:2], ONES[2][..., :0]).shape, (1, 1, 2, 0)),
    _row("x-transformers/not_checked", "HEAD-2", "Attend, four heads of keys and one of values",
        lambda: calls.x_transformers(*(np.ones((1, heads, 2, 1), np.float32) for heads in (4, 4, 1)))),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)

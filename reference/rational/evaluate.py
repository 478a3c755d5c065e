"""The second oracle: rationals around one exponential, in the standard library alone.

It shares no code with the reference, the first oracle or NumPy's arithmetic, and
proves nothing: it works to 60 digits of the largest value (of gradients to 100 and more), where float64
has 16. The suite takes the expected values of generated problems from here.
"""

from collections.abc import Callable, Mapping
from decimal import Context, localcontext
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import attention, scores
from attnspec.reference.rational.caching import (
    append_cache,
    gather_pages,
    merge_heads,
    merge_partials,
    split_heads,
)
from attnspec.reference.rational.dialect import checked
from attnspec.reference.rational.gradients import attention_vjp
from attnspec.reference.rational.positions import alibi_bias, rotary
from attnspec.reference.rational.projection import multi_head_attention, projection, self_attention

#: Digits worked with. Exponents are unbounded for all practical purposes.
_CONTEXT = Context(prec=60, Emin=-(10**15), Emax=10**15)

Arrays = dict[str, NDArray[np.float64]]

#: Those that a variant may change, by name, and those that none does.
_WITH_DIALECT: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, str]], Arrays]] = MappingProxyType(
    {
        "scores": scores,
        "attention": attention,
        "attention_vjp": attention_vjp,
        "self_attention": self_attention,
        "multi_head_attention": multi_head_attention,
        "alibi_bias": alibi_bias,
    }
)
_WITHOUT_DIALECT: Mapping[str, Callable[[Mapping[str, Any]], Arrays]] = MappingProxyType(
    {
        "projection": projection,
        "split_heads": split_heads,
        "merge_heads": merge_heads,
        "append_cache": append_cache,
        "gather_pages": gather_pages,
        "merge_partials": merge_partials,
        "rotary": rotary,
    }
)


def evaluate(
    operation: str, arguments: Mapping[str, Any], dialect: Mapping[str, str] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Compute the values of a call, rounded to float64.

    Parameters
    ----------
    operation : str
        A name in `attnspec.OPERATIONS`.
    arguments : mapping
        The arguments of the call, by canonical name. They are taken to be valid.
    dialect : mapping, optional
        Names of variants by rule id: the values are then those of an implementation that shows
        these. Variants that change no value are passed over.

    Returns
    -------
    dict of str to float64 array
        By output name, all that the operation has; of attention the scores too.

    Raises
    ------
    ValueError
        If there is no such operation or variant, or the standard does not say what the values are.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.rational.evaluate import evaluate
    >>> query, key = np.zeros((1, 2)), np.ones((3, 2))
    >>> evaluate("attention", {"query": query, "key": key, "value": key})["weights"].tolist()
    [[0.3333333333333333, 0.3333333333333333, 0.3333333333333333]]

    >>> call = {"query": query, "key": key, "value": key, "key_lengths": 0}
    >>> evaluate("attention", call, {"MASK-6": "uniform"})["output"].tolist()
    [[1.0, 1.0]]
    """
    variants = checked(dialect)
    with localcontext(_CONTEXT):
        if operation in _WITH_DIALECT:
            return _WITH_DIALECT[operation](arguments, variants)
        if operation in _WITHOUT_DIALECT:
            return _WITHOUT_DIALECT[operation](arguments)
    raise ValueError(f"operation: expected one of attnspec.OPERATIONS, got {operation!r}")

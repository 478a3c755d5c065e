"""The operations as functions of arrays of any library."""

from collections.abc import Callable, Mapping
from functools import cache
from inspect import Signature, signature
from types import MappingProxyType
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from attnspec import OPERATIONS
from attnspec.reference.alibi import alibi_bias, alibi_bias_of
from attnspec.reference.attention import attention, attention_of
from attnspec.reference.caching import (
    append_cache,
    append_cache_of,
    gather_pages,
    gather_pages_of,
    merge_partials,
    merge_partials_of,
)
from attnspec.reference.call import STEPS, Call, Step, Steps
from attnspec.reference.errors import described, need
from attnspec.reference.frequencies import rotary_frequencies, rotary_frequencies_of
from attnspec.reference.gradients import attention_vjp, attention_vjp_of
from attnspec.reference.gradients_of_companions import merge_partials_vjp, merge_partials_vjp_of
from attnspec.reference.gradients_of_multi_head import (
    multi_head_attention_vjp,
    multi_head_attention_vjp_of,
)
from attnspec.reference.gradients_of_packing import packed_attention_vjp, packed_attention_vjp_of
from attnspec.reference.gradients_of_positions import rotary_vjp, rotary_vjp_of
from attnspec.reference.gradients_of_sparsity import (
    block_sparse_attention_vjp,
    block_sparse_attention_vjp_of,
    listed_attention_vjp,
    listed_attention_vjp_of,
)
from attnspec.reference.heads import merge_heads, merge_heads_of, split_heads, split_heads_of
from attnspec.reference.latent import latent_attention, latent_attention_of
from attnspec.reference.low_precision import low_precision_attention, low_precision_attention_of
from attnspec.reference.multi_head import multi_head_attention, multi_head_attention_of
from attnspec.reference.packing import packed_attention, packed_attention_of
from attnspec.reference.paging import paged_attention, paged_attention_of
from attnspec.reference.positions import rotary, rotary_of
from attnspec.reference.projection import projection, projection_of
from attnspec.reference.quantization import (
    dequantize,
    dequantize_blocks,
    dequantize_blocks_of,
    dequantize_of,
)
from attnspec.reference.quantized_attention import quantized_attention, quantized_attention_of
from attnspec.reference.scores import scores, scores_of
from attnspec.reference.seeded_dropout import (
    seeded_dropout_attention,
    seeded_dropout_attention_of,
    seeded_dropout_attention_vjp,
    seeded_dropout_attention_vjp_of,
)
from attnspec.reference.self_attention import self_attention, self_attention_of
from attnspec.reference.sparsity import (
    block_sparse_attention,
    block_sparse_attention_of,
    listed_attention,
    listed_attention_of,
)

#: For each operation, the NumPy function that users call, which has the signature, and the step that it runs.
_OPERATIONS: tuple[tuple[Step, Step], ...] = (
    (projection, projection_of),
    (scores, scores_of),
    (attention, attention_of),
    (attention_vjp, attention_vjp_of),
    (self_attention, self_attention_of),
    (split_heads, split_heads_of),
    (merge_heads, merge_heads_of),
    (multi_head_attention, multi_head_attention_of),
    (multi_head_attention_vjp, multi_head_attention_vjp_of),
    (latent_attention, latent_attention_of),
    (seeded_dropout_attention, seeded_dropout_attention_of),
    (seeded_dropout_attention_vjp, seeded_dropout_attention_vjp_of),
    (append_cache, append_cache_of),
    (gather_pages, gather_pages_of),
    (dequantize, dequantize_of),
    (dequantize_blocks, dequantize_blocks_of),
    (quantized_attention, quantized_attention_of),
    (low_precision_attention, low_precision_attention_of),
    (merge_partials, merge_partials_of),
    (merge_partials_vjp, merge_partials_vjp_of),
    (packed_attention, packed_attention_of),
    (packed_attention_vjp, packed_attention_vjp_of),
    (paged_attention, paged_attention_of),
    (block_sparse_attention, block_sparse_attention_of),
    (block_sparse_attention_vjp, block_sparse_attention_vjp_of),
    (listed_attention, listed_attention_of),
    (listed_attention_vjp, listed_attention_vjp_of),
    (rotary, rotary_of),
    (rotary_vjp, rotary_vjp_of),
    (rotary_frequencies, rotary_frequencies_of),
    (alibi_bias, alibi_bias_of),
)


def functions(
    steps: Mapping[str, Step] | None = None,
    *,
    compiler: Callable[[Step], Step] | None = None,
    constant: Callable[[Any], Any] | None = None,
) -> Mapping[str, Step]:
    """Return the operations for arrays of any library. They use Array API calls only.

    Results have the dtype of the first array. Half precision is computed in float32. Lists and other
    objects that are not arrays are refused.

    Parameters
    ----------
    steps : mapping of str to callable, optional
        Replacements of steps, by name. Each takes the arguments of the step, of which a call is the
        first. Inside a replacement, the name means the original step.
    compiler : callable, optional
        Compiles the parts that read shapes only, as ``jax.jit`` does. It is meant for libraries that
        would otherwise compile each operation by itself.
    constant : callable, optional
        Returns an array through which no derivative flows. It is meant for libraries that differentiate.

    Returns
    -------
    mapping of str to callable
        The functions, by their names in `attnspec.OPERATIONS`, with the canonical signatures.

    Raises
    ------
    KeyError
        If a name is not the name of a step.

    Notes
    -----
    Source: the Python array API standard, 2024.12 or later.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import functions
    >>> from attnspec.reference.masking import by_mask
    >>> one, mask = np.ones((2, 1), np.float32), np.array([True, False])
    >>> functions()["attention"](one[:1], one, np.array([[1.0], [3.0]], np.float32), mask=mask)
    array([[1.]], dtype=float32)
    >>> inverted = functions({"by_mask": lambda call: ~by_mask(call)})
    >>> inverted["attention"](one[:1], one, np.array([[1.0], [3.0]], np.float32), mask=mask)
    array([[3.]], dtype=float32)
    """
    replaced = dict(steps or {})
    unknown = replaced.keys() - STEPS.keys()
    if unknown:
        raise KeyError(f"steps: expected some of {', '.join(STEPS)}, got {', '.join(sorted(unknown))}")
    own = Steps(replaced, compiler, constant)
    return MappingProxyType(
        {public.__name__: _function(public, operation, own) for public, operation in _OPERATIONS}
    )


@cache
def _canonical(public: Step) -> Signature:
    """Return the signature of an operation; cached, because each entry of the gallery has every operation."""
    known = signature(public)
    parameters = [each.replace(annotation=Any) for each in known.parameters.values() if each.name != "dtype"]
    return known.replace(parameters=parameters, return_annotation=Any)


def _function(public: Step, operation: Step, steps: Steps) -> Step:
    canonical = _canonical(public)
    first = OPERATIONS[public.__name__].arrays[0]

    def run(*arrays: Any, **options: Any) -> Any:
        given = canonical.bind(*arrays, **options)
        given.apply_defaults()
        leading = given.arguments[first]
        need(first, is_array_api_obj(leading), "an array", described(leading), "ERR-2")
        with np.errstate(all="ignore"):  # NUM-11 to NUM-14 define non-finite results
            return operation(Call(steps, array_namespace(leading), None), **given.arguments)

    run.__name__ = run.__qualname__ = public.__name__
    run.__doc__ = (public.__doc__ or "").partition("\n")[0]
    run.__signature__ = canonical  # type: ignore[attr-defined] # read by inspect.signature
    return run

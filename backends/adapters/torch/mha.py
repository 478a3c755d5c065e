"""PyTorch: ``nn.MultiheadAttention`` with given weights, with or without returning attention weights.

For attention, all its projections are the identity. A product with the identity is exact.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import is_masked
from attnspec.backends.adapters.deviations import mask_overflow
from attnspec.backends.adapters.torch import SUMS_OF_GRADIENTS, VERSIONS, to_attn_mask
from attnspec.backends.adapters.torch.sdpa import OF_WIDE
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.outcome import Variant


def weights_backend() -> Backend:
    """Ask for the weights, which selects a separate path of the module."""
    dialect = {"MASK-6": "nan", "NUM-5": "storage", "GRAD-10": "nan"}
    return _backend("torch-mha", _with_weights, dialect, (_OVERFLOW,), need_weights=True)


def plain_backend() -> Backend:
    """Ask for the output only, which the module computes by ``scaled_dot_product_attention``."""
    return _backend(
        "torch-mha-plain",
        _without_weights,
        {},
        (_OVERFLOW, _FAST_PATH, SUMS_OF_GRADIENTS, OF_WIDE),
        need_weights=False,
    )


def _backend(
    name: str,
    function: Callable[..., Any],
    dialect: dict[str, str],
    deviations: tuple[Deviation, ...],
    *,
    need_weights: bool,
) -> Backend:
    companions = {"multi_head_attention": _attention_of_tokens(need_weights=need_weights)}
    library = load_library("torch")
    return Backend(
        name,
        library,
        function,
        library.dtypes,
        companions,
        dialect=dialect,
        deviations=deviations,
        versions=VERSIONS,
    )


def _with_weights(
    query: Any,
    key: Any,
    value: Any,
    *,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
    return_weights: bool = False,
) -> Any:
    output, weights = _attention(query, key, value, bias, mask, is_causal=is_causal, need_weights=True)
    return (output, weights) if return_weights else output


def _without_weights(
    query: Any, key: Any, value: Any, *, bias: Any = None, mask: Any = None, is_causal: bool = False
) -> Any:
    return _attention(query, key, value, bias, mask, is_causal=is_causal, need_weights=False)[0]


def _attention(
    query: Any, key: Any, value: Any, bias: Any, mask: Any, *, is_causal: bool, need_weights: bool
) -> tuple[Any, Any]:
    arrays = (query, key, value)
    require_axes(2, *arrays)
    if len({array.shape[-1] for array in arrays}) > 1 or len({array.shape[:-2][-1:] for array in arrays}) > 1:
        raise Unsupported(
            "MultiheadAttention has one depth and one number of heads for queries, keys and values"
        )
    if not all(bool(torch.isfinite(array).all()) for array in arrays):
        raise Unsupported("NaN and infinity would spread over all features in a projection by the identity")
    depth = query.shape[-1]
    module = _module(depth, 1, query.dtype)
    identity = torch.eye(depth, dtype=query.dtype)
    _set(module, in_proj_weight=torch.cat([identity] * 3), out_proj_weight=identity)
    # Heads become batch entries. If heads were projected together, a row of NaN would spread between them.
    flat = [array.reshape((math.prod(array.shape[:-2]), *array.shape[-2:])) for array in arrays]
    attn_mask = _to_attn_mask(mask, bias, (*query.shape[:-1], key.shape[-2]))
    output, weights = _run(module, flat, attn_mask, is_causal=is_causal, need_weights=need_weights)
    return output.reshape(query.shape), None if weights is None else weights.reshape(
        *query.shape[:-1], key.shape[-2]
    )


def _attention_of_tokens(*, need_weights: bool) -> Callable[..., Any]:
    def multi_head_attention(
        tokens: Any,
        query_weight: Any,
        key_weight: Any,
        value_weight: Any,
        output_weight: Any,
        *,
        heads: int,
        memory: Any = None,
        query_bias: Any = None,
        key_bias: Any = None,
        value_bias: Any = None,
        output_bias: Any = None,
        mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        width, given = tokens.shape[-1], tokens if memory is None else memory
        shapes = [tuple(weight.shape) for weight in (query_weight, output_weight)]
        inner = [weight.shape[-1] for weight in (key_weight, value_weight)]
        if shapes != [(width, width)] * 2 or inner != [width] * 2 or tokens.ndim > 3:
            raise Unsupported("MultiheadAttention has one width for tokens, concatenated heads and output")
        module = _module(width, heads, tokens.dtype, kdim=given.shape[-1], vdim=given.shape[-1])
        weights = [weight.T for weight in (query_weight, key_weight, value_weight)]
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        own = (
            {"in_proj_weight": torch.cat(weights)}
            if given.shape[-1] == width
            else dict(zip(names, weights, strict=True))
        )
        none = torch.zeros(width, dtype=tokens.dtype)
        biases = [none if bias is None else bias for bias in (query_bias, key_bias, value_bias)]
        own |= {"out_proj_weight": output_weight.T, "in_proj_bias": torch.cat(biases)}
        own["out_proj_bias"] = none if output_bias is None else output_bias
        _set(module, **own)
        attn_mask = _to_attn_mask(mask, None, (*tokens.shape[:-2], heads, tokens.shape[-2], given.shape[-2]))
        arrays = [tokens, given, given]
        run = _differentiable(module, own) if tokens.requires_grad else module
        return _run(run, arrays, attn_mask, is_causal=is_causal, need_weights=need_weights)[0]

    return multi_head_attention


def _module(width: int, heads: int, dtype: Any, **widths: int) -> Any:
    return torch.nn.MultiheadAttention(width, heads, batch_first=True, dtype=dtype, **widths).eval()


def _differentiable(module: Any, parameters: dict[str, Any]) -> Callable[..., Any]:
    """Run a module with tensors as its parameters, through which derivatives flow."""
    own = {name.replace("out_proj_", "out_proj."): parameter for name, parameter in parameters.items()}

    def run(*arrays: Any, **options: Any) -> Any:
        return torch.func.functional_call(module, own, arrays, options)

    return run


def _set(module: Any, **parameters: Any) -> None:
    """Set the parameters of a module. Biases that are not given are 0 already."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            owner, attribute = (
                (module.out_proj, name.removeprefix("out_proj_"))
                if name.startswith("out_proj_")
                else (module, name)
            )
            getattr(owner, attribute).copy_(parameter)


def _run(
    module: Any, arrays: list[Any], attn_mask: Any, *, is_causal: bool, need_weights: bool
) -> tuple[Any, Any]:
    if is_causal and attn_mask is not None:
        raise Unsupported("is_causal of MultiheadAttention is only a hint that attn_mask is the causal mask")
    if is_causal:
        queries, keys = arrays[0].shape[-2], arrays[1].shape[-2]
        attn_mask = torch.ones(queries, keys, dtype=torch.bool).triu(1)  # True is *not* allowed here
    # Without a gradient it is inference, for which the module has a separate path.
    with torch.set_grad_enabled(any(array.requires_grad for array in arrays)):
        output, weights = module(
            *arrays,
            attn_mask=attn_mask,
            is_causal=is_causal,
            need_weights=need_weights,
            average_attn_weights=False,
        )
    return output, weights


def _to_attn_mask(mask: Any, bias: Any, shape: tuple[int, ...]) -> Any:
    """Convert mask and bias to the module's ``(B * H, L, S)``, in which True disallows."""
    attn_mask = to_attn_mask(mask, bias, 2)
    if attn_mask is None:
        return None
    if attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask
    if attn_mask.ndim == 2 and attn_mask.shape == shape[-2:]:
        return attn_mask
    return broadcast(torch, attn_mask, shape).reshape(-1, *shape[-2:])


_OVERFLOW = mask_overflow("torch/mha_masked_overflow", is_masked, "float16")
_FAST_PATH = Deviation(
    ("MASK-6",),
    "self-attention with an even number of heads uses a separate path in inference: an empty row is NaN",
    "torch/mha_fast_path",
    Variant("MASK-6", "nan"),
    when=lambda arguments: arguments.get("heads", 1) % 2 == 0 and "memory" not in arguments,
)

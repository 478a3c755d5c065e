"""Wrong about arguments that must have an effect, and about state of earlier calls."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


@wrong("capped", "ERR-3", "F", "sgl-project/sgl-kernel-xpu#491")
def softcap_without_effect(_call: Attention, x: Array) -> Any:
    """Accept a softcap and forget it."""
    return x


@wrong("by_key_lengths", "ERR-3", "R", "jax-ml/jax#23349")
def key_lengths_without_effect(_call: Attention) -> Any:
    """Accept lengths and forget them."""
    return True


@wrong("dropped", "ERR-3", "J", "pytorch/pytorch#184126")
def dropout_without_effect(_call: Attention, p: Array) -> Any:
    """Accept what to drop and forget it."""
    return p


@wrong("biased", "ERR-3", "L")
def bias_without_effect(_call: Attention, x: Array) -> Any:
    """Accept a bias and forget what is finite of it."""
    return x


@wrong("attend", "ERR-3", "L")
def bias_and_its_mask_without_effect(call: Attention) -> Any:
    """Accept a bias and forget it, minus infinity included."""
    return base.attend(call.but(bias=None))


@wrong("by_causality", "ERR-3", "A")
def causal_flag_without_effect(_call: Attention) -> Any:
    """Accept the causal flag and forget it."""
    return True


@wrong("by_window", "ERR-3", "E")
def window_without_effect(_call: Attention) -> Any:
    """Accept a window and forget it."""
    return True


@wrong("by_segments", "ERR-3", "R")
def segments_without_effect(_call: Attention) -> Any:
    """Accept segments and forget them."""
    return True


@wrong("by_causality", "ERR-3", "A")
def causal_dropped_beside_sinks(call: Attention) -> Any:
    """Forget the causal mask on the path for sinks."""
    return True if call.sinks is not None else base.by_causality(call)


@wrong("softmax_of", "ERR-3", "M", "kekzl/imp#1345")
def sinks_dropped_beside_lengths(call: Attention, s: Array, allowed: Mask) -> Any:
    """Forget the sinks on the path for lengths of keys."""
    return base.softmax_of(call.but(sinks=None) if call.key_lengths is not None else call, s, allowed)


@wrong("capped", "ERR-3", "F")
def softcap_dropped_beside_sinks(call: Attention, x: Array) -> Any:
    """Forget the softcap on the path for sinks."""
    return base.capped(call if call.sinks is None else call.but(softcap=None), x)


@wrong("biased", "ERR-3", "L")
def bias_dropped_in_shared_heads(call: Attention, x: Array) -> Any:
    """Forget the bias where key heads are shared."""
    return base.biased(call if call.key.shape[-3] == call.query.shape[-3] else call.but(bias=None), x)


@wrong("allowed", "ERR-13", "T", "flashinfer-ai/flashinfer#1028")
def mask_of_an_earlier_call(call: Attention) -> Any:
    """Keep the allowed keys of the first call of a shape."""
    kept = call.steps.memory.setdefault("allowed", {})
    return kept.setdefault(call.shape, base.allowed(call))


@wrong("factor", "ERR-13", "T", "flashinfer-ai/flashinfer#4014")
def scale_of_an_earlier_call(call: Attention) -> Any:
    """Keep the scale of the first call of a shape and dtype."""
    kept = call.steps.memory.setdefault("scale", {})
    return kept.setdefault((call.shape, call.storage.name), base.factor(call))


@wrong("by_causality", "ERR-13", "T", "ml-explore/mlx#2053")
def causal_flag_of_an_earlier_call(call: Attention) -> Any:
    """Leave the causal flag out of what a compiled kernel is kept by."""
    kept = call.steps.memory.setdefault("causal", {})
    key = (call.shape, call.storage.name, call.mask is None, call.bias is None, call.window, call.scale)
    return base.by_causality(call.but(is_causal=kept.setdefault(key, call.is_causal)))


@wrong("biased", "ERR-14", "L", "pytorch/pytorch#191612")
def bits_of_the_bias_reread(call: Attention, x: Array) -> Any:
    """Read a bias of a longer dtype as if it were of the query's."""

    def reread(bias: Array) -> Array:
        if bias.dtype.itemsize <= call.storage.itemsize:
            return bias
        return np.frombuffer(bias.tobytes(), call.storage)[: bias.size].reshape(bias.shape)

    return base.biased(altered(call, bias=reread), x)


@wrong("biased", "ERR-14", "L")
def bias_rounded_to_the_query(call: Attention, x: Array) -> Any:
    """Cast a bias to the dtype of the query."""
    return base.biased(altered(call, bias=lambda bias: bias.astype(call.storage)), x)


@wrong("softmax_of", "ERR-14", "L")
def sinks_rounded_to_the_query(call: Attention, s: Array, allowed: Mask) -> Any:
    """Cast sinks to the dtype of the query."""
    return base.softmax_of(altered(call, sinks=lambda sinks: sinks.astype(call.storage)), s, allowed)

"""What the search by name knows: the names, the words by which readers look for them, and plain texts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pages.page import Name, packed

from attnspec.conformance.render.html.page import script

#: Words by the kind and the name of what they find.
WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("rule", "HEAD-1"): (
        "head mapping", "gqa head mapping", "enable_gqa", "repeat_interleave", "repeat_kv",
        "num_kv_heads", "kv heads", "grouped heads",
    ),
    ("rule", "MASK-1"): ("attn_mask", "boolean mask", "mask polarity", "key_padding_mask", "bool mask"),
    ("rule", "MASK-2"): ("mask with -inf", "additive mask", "float mask"),
    ("rule", "MASK-3"): (
        "causal different lengths", "causal mask", "causal alignment", "top-left", "bottom-right",
        "tril",
    ),
    ("rule", "MASK-6"): (
        "fully masked row", "empty row", "fully masked", "nan row", "no key to attend to",
    ),
    ("rule", "MASK-7"): ("causal different lengths", "causal with a cache", "offset"),
    ("rule", "MASK-8"): ("sliding window", "window_size", "local attention", "sliding window attention"),
    ("rule", "MASK-9"): ("padding", "seqused_k", "seqlens_k"),
    ("rule", "MASK-11"): ("document mask", "block-diagonal mask"),
    ("rule", "NUM-3"): (
        "tolerance", "tolerances", "tolerances bf16", "allowed error", "allowed errors", "atol", "rtol",
        "error bound", "precision", "allclose",
    ),
    ("rule", "NUM-5"): ("half precision", "fp16", "bf16", "float16", "bfloat16", "tolerances bf16"),
    ("rule", "NUM-9"): ("deterministic", "determinism", "reproducible", "nondeterministic"),
    ("rule", "NUM-10"): ("batch invariance", "batch invariant", "deterministic"),
    ("rule", "SCORE-2"): ("default scale", "softmax_scale", "sm_scale"),
    ("rule", "SCORE-5"): ("softcap order", "softcap before mask", "logits_soft_cap", "soft cap"),
    ("rule", "SOFT-5"): ("attention sink", "sinks", "off by one softmax"),
    ("rule", "SOFT-6"): ("lse", "logsumexp", "log-sum-exp", "softmax_lse", "base of the lse"),
    ("rule", "SOFT-7"): ("lse of an empty row", "lse of a fully masked row"),
    ("rule", "GRAD-1"): ("backward", "backward pass", "gradient", "vjp", "autograd", "training"),
    ("rule", "CACHE-6"): ("split-kv", "flash decoding", "merge states", "ring attention"),
    ("rule", "ERR-3"): ("unsupported argument", "ignored argument"),
    ("rule", "SHAPE-1"): ("layout", "bhsd", "bshd", "axes order", "tensor layout"),
    ("rule", "SHAPE-2"): ("2d input", "no batch axis"),
    ("rule", "SHAPE-3"): ("output shape", "value depth", "head_dim_v", "d_v"),
    ("rule", "SHAPE-6"): ("shape mismatch", "shape error", "batch mismatch"),
    ("rule", "SHAPE-7"): ("empty inputs", "zero length", "size 0", "no keys"),
    ("rule", "SHAPE-8"): ("lse shape", "shape of the lse"),
    ("rule", "SHAPE-10"): ("return order", "order of outputs", "tuple of results"),
    ("rule", "SCORE-3"): ("custom scale", "scale 0", "negative scale", "scale ignored"),
    ("rule", "SCORE-4"): (
        "score_mod","bias before scaling", "position bias", "attn_bias added"),
    ("rule", "SCORE-6"): ("softcap 0", "negative softcap"),
    ("rule", "MASK-14"): (
        "tree attention", "speculative decoding", "draft tokens", "tree mask", "ring buffer",
        "positions of keys",
    ),
    ("rule", "MASK-15"): ("position -1", "negative position", "unused slot"),
    ("rule", "SOFT-1"): ("softmax axis", "weights sum to 1", "normalization"),
    ("rule", "SOFT-2"): ("stable softmax", "online softmax", "max subtraction", "large logits"),
    ("rule", "SOFT-4"): ("attention weights", "need_weights", "attention probabilities"),
    ("rule", "SOFT-8"): ("row max", "return_max", "maximum of a row"),
    ("rule", "HEAD-2"): ("uneven heads", "heads not divisible", "divisibility of heads"),
    ("rule", "HEAD-3"): ("split heads", "reshape heads"),
    ("rule", "HEAD-6"): ("multi-head attention", "mha"),
    ("rule", "HEAD-7"): ("cross attention", "encoder decoder", "memory"),
    ("rule", "CACHE-1"): ("update cache", "append keys"),
    ("rule", "CACHE-2"): (
        "cache full", "cache overflow", "append past the end", "out of space in the cache",
    ),
    ("rule", "CACHE-3"): ("prefill equals decode", "decode matches prefill", "incremental decoding"),
    ("rule", "CACHE-7"): ("merge empty part", "empty chunk", "split without keys"),
    ("rule", "PACK-1"): ("cu_seqlens", "varlen", "sequence packing", "thd"),
    ("rule", "PACK-5"): ("varlen causal", "packed causal"),
    ("rule", "PAGE-1"): ("block_table", "paged kv cache"),
    ("rule", "PAGE-7"): ("paged decode offset",),
    ("rule", "QUANT-5"): ("per head scale", "per channel scale", "per token scale", "granularity"),
    ("rule", "QUANT-6"): ("q8_0", "gguf"),
    ("rule", "QUANT-7"): ("q4_0", "nibbles"),
    ("rule", "QUANT-8"): ("int8 attention", "quantized kv cache", "fp8 kv cache"),
    ("rule", "QUANT-13"): ("fp4", "nvfp4", "mxfp4", "e2m1"),
    ("rule", "QUANT-14"): ("e8m0", "mx scale", "mxfp8"),
    ("rule", "POS-2"): ("neox", "rotate_half", "half rotation"),
    ("rule", "POS-3"): ("interleaved", "gpt-j", "traditional rope"),
    ("rule", "POS-4"): ("partial rotary", "rotary_dim"),
    ("rule", "POS-5"): ("rope offset", "start position"),
    ("rule", "POS-7"): ("alibi slopes", "get_slopes"),
    ("rule", "POS-8"): ("alibi sign", "alibi distance"),
    ("rule", "POS-10"): ("position_ids",),
    ("rule", "POS-18"): ("rope theta", "rope base"),
    ("rule", "POS-20"): ("ntk", "dynamic ntk rope"),
    ("rule", "POS-21"): ("yarn", "context extension"),
    ("rule", "POS-22"): ("mscale", "yarn attention factor"),
    ("rule", "SPARSE-6"): ("index list", "gather keys"),
    ("rule", "SELECT-1"): ("top-k", "topk", "lightning indexer"),
    ("rule", "LATENT-1"): ("mla", "deepseek", "absorbed weights"),
    ("rule", "DROP-2"): ("inverted dropout", "dropout scaling"),
    ("rule", "DROP-6"): ("dropout seed", "rng state", "philox"),
    ("rule", "GRAD-2"): ("gradient dtype", "gradient shape"),
    ("rule", "GRAD-4"): ("dbias", "bias gradient"),
    ("rule", "GRAD-6"): ("dlse", "gradient through the lse"),
    ("rule", "GRAD-7"): ("dsink", "sink gradient"),
    ("rule", "GRAD-10"): ("nan gradient", "nan gradients of padding"),
    ("rule", "GRAD-19"): ("gradient tolerance", "gradcheck", "gradients do not match", "backward error"),
    ("rule", "NUM-1"): ("output dtype", "returns float32"),
    ("rule", "NUM-2"): ("float64", "double precision"),
    ("rule", "NUM-6"): ("rounding bias", "truncation"),
    ("rule", "NUM-7"): ("lse dtype", "lse precision", "lse in bf16", "lse in half precision"),
    ("rule", "NUM-8"): ("non-contiguous", "strides", "transposed inputs", "views", "layout in memory"),
    ("rule", "NUM-11"): ("nan in query", "nan in key", "infinite score"),
    ("rule", "NUM-12"): ("nan in value", "nan in v"),
    ("rule", "NUM-13"): ("inf in value", "infinite value", "inf in v"),
    ("rule", "NUM-14"): ("score of -inf",),
    ("rule", "ERR-1"): (
        "mixed dtypes", "different dtypes", "dtype mismatch", "q k v of different dtype",
    ),
    ("rule", "ERR-2"): ("integer inputs", "complex inputs"),
    ("rule", "ERR-4"): ("int mask", "float mask", "integer mask", "mask dtype"),
    ("rule", "ERR-7"): ("window -1", "negative window"),
    ("rule", "ERR-13"): ("stale mask", "plan and run", "kernel cache key"),
    ("rule", "ERR-15"): ("mask shape", "mask broadcast error", "attn_mask shape"),
    ("rule", "ERR-19"): ("out of bounds", "illegal memory access", "memory safety"),
    ("rule", "ERR-20"): ("cuda graph", "graph replay"),
    ("rule", "PROJ-7"): ("nn.linear weight", "weight layout", "transposed weight"),
    ("page", "gradients"): ("backward", "backward pass", "vjp"),
    ("page", "invariance"): ("deterministic", "batch invariance", "reproducible"),
    ("page", "numerics"): ("allowed error", "tolerance", "tolerances", "tolerances bf16", "budget"),
    ("page", "calls"): ("kernel libraries", "translate arguments", "flash-attn"),
    ("page", "dialects"): ("pytorch and jax", "differences of libraries", "dialect"),
    ("section", "Calls of kernel libraries: FlashAttention"): ("flash-attn", "flash_attn", "fa2", "fa3"),
    ("section", "Calls of kernel libraries: cuDNN"): ("cudnn frontend", "nvidia"),
    ("section", "Calls of kernel libraries: vLLM"): ("paged attention",),
    ("page", "Testing offline"): (
        "export", "attnspec.h", "header", "offline", "c header", "without python", "judge",
    ),
    ("page", "Test your kernel in ten minutes"): ("tutorial", "quickstart", "install", "ci"),
    ("page", "The protocol"): ("program", "pipe", "stdin", "c++", "rust"),
    ("page", "Compare"): ("compare", "compare my results", "two versions", "my results", "results file"),
    ("page", "Results"): ("can i use", "matrix", "compatibility", "support table", "which library"),
    ("page", "Findings"): ("bugs", "known bugs", "issues"),
    ("page", "Gallery"): ("wrong implementations", "mutants"),
    ("page", "Cases"): ("test vectors", "golden vectors"),
    ("library", "torch"): (
        "pytorch", "sdpa", "scaled_dot_product_attention", "flex attention", "memory_efficient_attention",
        "xformers",
    ),
    ("library", "jax"): ("dot_product_attention",),
    ("library", "onnxruntime"): ("ort", "groupqueryattention"),
}  # fmt: skip

_MATH = re.compile(r"\$([^$]+)\$")
_COMMAND = re.compile(r"\\(?:mathrm|text|operatorname)\{([^}]*)\}|\\([a-z]+)")
_REFERENCE = re.compile(r"!?\[([^][]*)\](?:\([^()\s]*\)|\[[a-z-]+\])?")


def plain(text: str) -> str:
    r"""Remove the markup of a text."""

    def formula(match: re.Match[str]) -> str:
        return (
            _COMMAND.sub(lambda command: command[1] or command[2], match[1]).replace("{", "").replace("}", "")
        )

    # Every second part is code, which stays as it is.
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        parts[place] = _REFERENCE.sub(r"\1", _MATH.sub(formula, parts[place])).replace("**", "")
    return " ".join("".join(parts).split())


def with_words(names: Iterable[Name], terms: Mapping[str, tuple[str, ...]]) -> tuple[Name, ...]:
    """Add the words by which readers look for names, and remove the markup of what is shown."""
    return tuple(
        replace(
            name,
            title=plain(name.title),
            text=plain(name.text),
            words=tuple(
                dict.fromkeys(
                    word.lower()
                    for word in (
                        *name.words,
                        *WORDS.get((name.kind, name.name), ()),
                        *(terms.get(name.name, ()) if name.kind == "rule" else ()),
                    )
                )
            ),
        )
        for name in names
    )


def names_script(names: Sequence[Name]) -> str:
    """Return the script that gives the search its names."""
    rows = [
        [name.kind, name.name, name.title, name.address, "|".join(name.words), name.text] for name in names
    ]
    return script("attnspecNames", packed(rows))

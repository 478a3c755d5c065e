"""What the search by name knows: the names, the words by which readers look for them, and plain texts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pages.page import Name, packed

from attnspec.conformance.render.html.page import script

#: Words by the kind and the name of what they find.
WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("rule", "HEAD-1"): (
        "head mapping", "gqa head mapping", "enable_gqa", "repeat_interleave", "repeat_kv", "num_kv_heads",
        "kv heads", "grouped heads",
    ),
    ("rule", "MASK-1"): ("attn_mask", "boolean mask", "mask polarity", "key_padding_mask"),
    ("rule", "MASK-2"): ("mask with -inf", "additive mask"),
    ("rule", "MASK-3"): (
        "causal different lengths", "causal mask", "causal alignment", "top-left", "bottom-right", "tril",
    ),
    ("rule", "MASK-6"): ("fully masked row", "empty row", "fully masked", "nan row", "no key to attend to"),
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
    ("rule", "SOFT-7"): ("lse of an empty row",),
    ("rule", "GRAD-1"): ("backward", "backward pass", "gradient", "vjp", "autograd", "training"),
    ("rule", "CACHE-6"): ("split-kv", "flash decoding", "merge states", "ring attention"),
    ("rule", "ERR-3"): ("unsupported argument", "ignored argument"),
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
    ("library", "torch"): ("pytorch", "sdpa", "scaled_dot_product_attention", "flex attention"),
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

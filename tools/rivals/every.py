"""All rules, in the order of the page."""

from tools.rivals import (
    flash_attention,
    flashinfer,
    ggml,
    jax_nn,
    kernelbench,
    onnx_nodes,
    opinfo,
    tokamax,
    transformers,
    tritonbench,
)
from tools.rivals.rival import Rival

RIVALS: tuple[Rival, ...] = tuple(
    rival
    for module in (
        kernelbench,
        opinfo,
        tritonbench,
        flashinfer,
        jax_nn,
        transformers,
        flash_attention,
        ggml,
        onnx_nodes,
        tokamax,
    )
    for rival in module.RIVALS
)

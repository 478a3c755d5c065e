"""The attention functions of PyTorch."""

from attnspec.backends.deviation import Deviation
from attnspec.dtypes import SHORT

#: The releases on which the declarations were observed.
VERSIONS = ">=2.13,<2.14"

#: The fused kernel of the CPU, which several functions use.
SUMS_OF_GRADIENTS = Deviation(
    ("NUM-5", "GRAD-19"),
    "the gradients of keys and values are added up in half precision, 32 queries at a time",
    "torch/flash_gradient_sums",
    dtypes=SHORT,
    outputs=("d_key", "d_value"),
    when=lambda arguments: bool(arguments["query"].shape[-2] > 32),
)

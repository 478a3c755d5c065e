"""The attention functions of PyTorch."""

#: The releases on which the declarations were observed.
VERSIONS = ">=2.13,<2.14"

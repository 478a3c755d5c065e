"""The attention functions of PyTorch."""

#: The releases that what is declared here was seen on.
VERSIONS = ">=2.13,<2.14"

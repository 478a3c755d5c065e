"""The attention functions of JAX."""

#: The releases that what is declared here was seen on.
VERSIONS = ">=0.10,<0.11"

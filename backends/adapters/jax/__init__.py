"""The attention functions of JAX."""

#: The releases on which the declarations were observed.
VERSIONS = ">=0.10,<0.11"

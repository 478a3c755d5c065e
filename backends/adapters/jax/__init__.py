"""The attention functions of JAX."""

"""The attention functions of PyTorch."""

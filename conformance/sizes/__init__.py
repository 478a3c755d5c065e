"""The sizes: calls by formula at the sizes at which kernels take other paths, for ``--sizes``."""

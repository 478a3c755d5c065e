"""What several test files use."""

import broken

from attnspec.backends import Backend, load


def backend_of(name, **options):
    """One of the misbehaving functions, as a backend on NumPy."""
    return Backend(f"broken:{name}", "numpy", "", load("numpy-portable").xp, getattr(broken, name), **options)

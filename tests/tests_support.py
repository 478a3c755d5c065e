"""Helpers for several test files."""

import os
import shutil
import sysconfig
from pathlib import Path

import broken

from attnspec.backends import Backend, load_library


def can_compile():
    """Whether PyTorch can compile for a CPU here: that takes a C++ compiler and the headers of Python."""
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    return shutil.which(os.environ.get("CXX", "g++")) is not None and headers.exists()


def backend_of(name, **options):
    """One of the misbehaving functions, as a backend on NumPy."""
    return Backend(f"broken:{name}", load_library("numpy"), getattr(broken, name), **options)

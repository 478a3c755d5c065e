"""NumPy."""

import numpy as np

from attnspec.backends.library import array_properties
from attnspec.backends.library.library import array_api_library
from attnspec.reference.numpy_namespace import xp

LIBRARY = array_api_library("numpy", np.__version__, xp, **array_properties("numpy"))

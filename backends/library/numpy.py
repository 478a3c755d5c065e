"""NumPy."""

import array_api_compat.numpy as xp
import numpy as np

from attnspec.backends.library import array_properties
from attnspec.backends.library.library import array_api_library

LIBRARY = array_api_library("numpy", np.__version__, xp, **array_properties("numpy"))

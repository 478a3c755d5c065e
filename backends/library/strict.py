"""array-api-strict: raises for anything beyond the Array API; it has no half precision."""

import array_api_strict

from attnspec.backends.library.library import array_api_library

LIBRARY = array_api_library(
    "strict", array_api_strict.__version__, array_api_strict, dtypes=("float32", "float64")
)

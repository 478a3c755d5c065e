"""array-api-strict, which raises for everything outside the Array API and has no half precision."""

import array_api_strict

from attnspec.backends.library.library import array_api_library

LIBRARY = array_api_library(
    "strict", array_api_strict.__version__, array_api_strict, dtypes=("float32", "float64")
)

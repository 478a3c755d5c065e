"""Pages of results: the matrix, comparisons, and a page for each backend, in a folder without a server."""

from attnspec.conformance.render.html.folder import write

__all__ = ["write"]

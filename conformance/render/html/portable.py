"""What the pages say of the portable backends, which are easily taken for the libraries that they run on."""

from collections.abc import Collection

from attnspec.backends.names import ADAPTERS, LIBRARY_NAMES, PORTABLE, SEPARATE

#: What the columns of portable backends are, in one sentence.
NOTE = (
    "Portable code on a library is the reference implementation of this project, run on the arrays of that "
    "library; its results say nothing about the attention functions of the library itself."
)


def label_of(backend: str) -> str:
    """Return the name of a backend on a page.

    Examples
    --------
    >>> from attnspec.conformance.render.html.portable import label_of
    >>> label_of("jax-portable"), label_of("jax-nn")
    ('portable code on JAX', 'jax-nn')
    """
    if backend not in PORTABLE:
        return backend
    return f"portable code on {LIBRARY_NAMES[PORTABLE[backend]]}"


def without_run(run: Collection[str]) -> list[str]:
    """Return the backends of libraries that are not among those that were run.

    Examples
    --------
    >>> from attnspec.conformance.render.html.portable import without_run
    >>> without_run(["torch-sdpa"])[:2]
    ['torch-math', 'torch-flash']
    """
    return [name for name in (*ADAPTERS, *SEPARATE) if name not in run]

"""Write the findings of a probe as an ``attnspec.toml``."""

from collections.abc import Iterator, Mapping

from attnspec.backends.user.probe import Findings


def as_toml(place: str, array: str, found: Findings, library: str = "") -> str:
    """Return the text of a configuration, with a reason for each key.

    Examples
    --------
    >>> from attnspec.backends.user.convention import Convention
    >>> from attnspec.backends.user.probe import Findings
    >>> from attnspec.backends.user.written import as_toml
    >>> found = Findings(Convention(layout="BSHD"), why={"layout": "it was so"})
    >>> print(as_toml("my:kernel", "numpy", found))
    # Inferred by calling the function; `attnspec check` reads this file.
    [backend]
    function = "my:kernel"
    array = "numpy"
    layout = "BSHD"  # it was so
    <BLANKLINE>
    """
    return "\n".join(_lines(place, array, found, library)) + "\n"


def _lines(place: str, array: str, found: Findings, library: str) -> Iterator[str]:
    convention, why = found.convention, found.why
    yield from _of_place(place, array, library)
    yield f'layout = "{convention.layout}"' + _because(why, "layout")
    if convention.axes is not None:
        yield f"axes = {convention.axes}" + _because(why, "axes")
    if found.depths:
        yield f"depths = [{', '.join(map(str, found.depths))}]{_because(why, 'depths')}"
    if "mask" in why:
        yield f'mask = "{convention.mask}"' + _because(why, "mask")
    for key, words in (
        ("returns", convention.returns),
        ("given", convention.given),
        ("ignore", found.ignore),
    ):
        if words:
            written = ", ".join(f'"{word}"' for word in words)
            yield f"{key} = [{written}]{_because(why, key)}"
    if convention.names:
        yield "\n[backend.names]"
        for ours, own in convention.names.items():
            yield f'{ours} = "{own}"' + (_because(why, ours) if ours != "mask" else "")
    if found.dialect:
        yield "\n[backend.dialect]"
        for rule, variant in found.dialect.items():
            yield f'{rule} = "{variant}"{_because(why, rule)}'


def _of_place(place: str, array: str, library: str) -> Iterator[str]:
    yield "# Inferred by calling the function; `attnspec check` reads this file."
    yield "[backend]"
    yield f'function = "{place}"'
    yield f'array = "{array}"'
    if library:
        yield f'library = "{library}"  # the installed package whose version applies'


def _because(why: Mapping[str, str], key: str) -> str:
    return f"  # {why[key]}" if key in why else ""

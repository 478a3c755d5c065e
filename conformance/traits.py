"""The names of traits: what kind of call a case makes, beside the names of its options."""

#: A call that must raise; several calls that are held against each other.
REFUSED, RELATED = "refused", "related"
#: Of attention: what a call lacks or has besides its options. Each is the condition of some bug.
NO_SCALE, SHARED, EMPTY, SPECIAL = "no scale", "shared heads", "empty row", "special numbers"
MORE_QUERIES, OTHER_DEPTH, VIEWED = "more queries", "other value depth", "layout"
#: A call for gradients.
GRADIENT = "gradient"
NOTHING, ONE_QUERY = "empty axes", "one query"
#: More keys or queries than a tile of a size holds.
TILED, TILED_32, TILED_64 = "tiles", "tiles of 32", "tiles of 64"
#: A window without one of its bounds.
OPEN_LEFT, OPEN_RIGHT = "open on the left", "open on the right"
#: A score so large, or a row of scores all so low, that the exponential leaves float32.
LARGE = "large scores"


def negative(option: str) -> str:
    """Name calls with a negative number, or some, as an option."""
    return f"negative {option}"


def zero(option: str) -> str:
    """Name calls in which a number of an option is 0."""
    return f"{option} of 0"


def by_entry(option: str) -> str:
    """Name calls with numbers that differ between batch entries as an option."""
    return f"{option} by entry"


def option_of(trait: str) -> str:
    """Take the option out of such a name; other traits stay as they are.

    Examples
    --------
    >>> from attnspec.conformance.traits import negative, option_of
    >>> option_of(negative("scale")), option_of("mask")
    ('scale', 'mask')
    """
    if trait in (OPEN_LEFT, OPEN_RIGHT):
        return "window"
    return trait.removeprefix("negative ").removesuffix(" of 0").removesuffix(" by entry")

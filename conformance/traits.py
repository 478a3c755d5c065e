"""The names of traits: what kind of call a case makes, beside the names of its options."""

#: A call that must raise; several calls that are held against each other.
REFUSED, RELATED = "refused", "related"
#: Of attention: what a call lacks or has besides its options. Each is the condition of some bug.
NO_SCALE, SHARED, EMPTY, SPECIAL = "no scale", "shared heads", "empty row", "special numbers"
MORE_QUERIES, OTHER_DEPTH, TILED, VIEWED = "more queries", "other value depth", "tiles", "layout"
NOTHING = "empty axes"
#: A score so large, or a row of scores all so low, that the exponential leaves float32.
LARGE = "large scores"

"""The names of traits of calls, besides the names of options."""

#: A call that must be rejected; several calls that are compared with each other.
REFUSED, RELATED = "refused", "related"
#: Properties of calls of attention besides the options. Each is the condition of some bug.
NO_SCALE, SHARED, EMPTY, SPECIAL = "no scale", "shared heads", "empty row", "special numbers"
#: A row that may attend to some keys, and not to all.
MASKED = "masked keys"
MORE_QUERIES, OTHER_DEPTH, VIEWED = "more queries", "other value depth", "layout"
#: Of key and value, only one does not lie in rows, or both do not in two ways.
OTHER_STRIDES = "strides of key and value"
#: A call for gradients.
GRADIENT = "gradient"
NOTHING, ONE_QUERY = "empty axes", "one query"
#: More keys or queries than a tile of some size.
TILED, TILED_32, TILED_64 = "tiles", "tiles of 32", "tiles of 64"
TILES = {TILED, TILED_32, TILED_64}
#: A row whose largest score comes after the first tile of some size, so that a running maximum rises.
RISING, RISING_32, RISING_64 = "rising past 16 keys", "rising past 32 keys", "rising past 64 keys"
#: Sequences of packed rows that do not all have the same length, and a length that fills its last page.
UNEQUAL, WHOLE_PAGES = "unequal sequences", "whole pages"
#: Packed rows that belong to no sequence.
ROWS_PAST = "rows after the last sequence"
#: A window without one of its bounds, and one that closes at its query on the left.
OPEN_LEFT, OPEN_RIGHT, CLOSED_LEFT = "open on the left", "open on the right", "closed on the left"
#: Blocks of queries of another size than those of keys.
UNEQUAL_BLOCKS = "blocks of two sizes"
#: Keys that do not fill the last block, and a list that has a block after a later one.
LAST_BLOCK, ANY_ORDER = "a shorter last block", "blocks in any order"
#: A finite number near the largest of its dtype, and an integer that 32 bits hardly hold.
HUGE, FAR = "huge numbers", "integers of 31 bits"
#: A bias that falls with the distance by a slope of each head, as a function that takes slopes has it.
LINEAR = "linear bias"
#: A score so large, or a row of scores so low, that the exponential is outside the range of float32.
LARGE = "large scores"
#: A call whose result is judged in some rows, because the numbers of all rows differ.
ARBITRARY = "arbitrary numbers"
#: How the names of groups of sized cases begin. A group of the suite may begin with the word.
SIZED_GROUPS = "sizes: "
#: Relations between sizes, besides `MORE_QUERIES`.
FEWER_QUERIES, OTHER_QUERIES = "fewer queries", "another number of queries"
BATCHED, HEADS, ODD_HEADS = "several batch entries", "several heads", "heads no power of two"
#: How traits of sizes begin, and what is in them.
MORE_THAN, NOT_A_MULTIPLE = "more than ", " not a multiple of "
#: A depth that vectors of eight numbers do not fill.
ODD_DEPTH = f"features{NOT_A_MULTIPLE}8"
#: An odd number of features.
UNPAIRED = f"features{NOT_A_MULTIPLE}2"
#: Traits that most calls have.
USUAL = (NO_SCALE, ODD_DEPTH)
#: The axes of an array with an entry for each pair of a query and a key, the last one first.
AXES_OF_PAIRS = ("column", "row", "head", "batch entry")
_OF_ONE, _INSIDE = " of one ", " with an axis of 1 inside"


def negative(option: str) -> str:
    """Return the trait of calls with a negative number in an option."""
    return f"negative {option}"


def zero(option: str) -> str:
    """Return the trait of calls with a 0 in an option."""
    return f"{option} of 0"


def by_entry(option: str) -> str:
    """Return the trait of calls in which an option differs between batch entries."""
    return f"{option} by entry"


def of_dtype(name: str, dtype: str) -> str:
    """Return the trait of calls in which an argument holds integers of a dtype that few callers use."""
    return f"{name} of {dtype}"


def repeated(option: str, what: str) -> str:
    """Return the trait of calls in which an array of pairs has an axis of 1 for several of something."""
    return f"{option}{_OF_ONE}{what}"


def repeated_inside(option: str) -> str:
    """Return the trait of calls in which an array of pairs has an axis of 1 inside a longer one."""
    return f"{option}{_INSIDE}"


def option_of(trait: str) -> str:
    """Return the option of such a trait. Other traits do not change."""
    if trait in (OPEN_LEFT, OPEN_RIGHT, CLOSED_LEFT):
        return "window"
    trait = trait.partition(_OF_ONE)[0].removesuffix(_INSIDE)
    return trait.removeprefix("negative ").removesuffix(" of 0").removesuffix(" by entry")

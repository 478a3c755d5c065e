"""The operations on quantised arrays: the arguments of the chapter `quantization`."""

from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.attention import ATTENTION
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import REQUIRED, Argument, Operation, Output

_SINCE = "2026.11.22"
REFUSED = MappingProxyType({"dtype": "QUANT-9", "shape": "QUANT-9", "axes": "QUANT-9"})
_QUERIES = (BATCH, "Hq", "L", "D")
_KEYS = (BATCH, "Hkv", "S", "D")
_VALUES = (BATCH, "Hkv", "S", "Dv")

#: The encodings of codes that are numbers by themselves.
ENCODINGS = ("int8", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1fn", "e8m0fnu")
#: The least and the largest code of each encoding. A code of 8 bits may be that of a signed integer.
RANGES = MappingProxyType({**dict.fromkeys(ENCODINGS, (-128, 255)), "e2m1fn": (0, 15)})
#: The formats of blocks of 32 codes, and how many bytes the codes of a block take.
BLOCKS = MappingProxyType({"q8_0": 32, "q4_0": 16})
#: The number of codes of a block.
OF_BLOCK = 32


def codes(name: str, meaning: str, rule: str, shape: tuple[str, ...]) -> Argument:
    """Declare codes."""
    return Argument(name, "array", meaning, ("data",), rule, shape, "integer", refusals=REFUSED, since=_SINCE)


def scale(name: str, of: str, shape: tuple[str, ...]) -> Argument:
    """Declare the scales of codes."""
    meaning = f"what the numbers of {of} are multiplied by; 1 by default"
    return Argument(
        name,
        "array",
        meaning,
        ("data",),
        "QUANT-5",
        shape,
        broadcasts=True,
        by_blocks=True,
        default=None,
        refusals=REFUSED,
        since=_SINCE,
    )


def zero_point(name: str, of: str, shape: tuple[str, ...]) -> Argument:
    """Declare the zero points of codes."""
    factor = scale(name, of, shape)
    meaning = f"subtracted from the numbers of {of}; 0 by default"
    return replace(factor, meaning=meaning, rule="QUANT-2", numbers="integer")


def _word(name: str, words: tuple[str, ...], meaning: str, rule: str) -> Argument:
    refusals = MappingProxyType({"form": "ERR-16"})
    return Argument(
        name,
        "word",
        meaning,
        ("form",),
        rule,
        default=words[0],
        words=words,
        refusals=refusals,
        since=_SINCE,
    )


ENCODING = _word("encoding", ENCODINGS, "what the codes stand for", "QUANT-1")
_OPTIONS = tuple(replace(argument, since=max(argument.since, _SINCE)) for argument in ATTENTION.named)
_RESULTS = tuple(replace(output, since=_SINCE) for output in ATTENTION.results)
_OF_KEYS = (
    scale("key_scales", "key codes", _KEYS),
    scale("value_scales", "value codes", _VALUES),
)

_DECODED = (BATCH, "H", "N", "D")
DEQUANTIZE = Operation(
    (
        replace(
            scale("scales", "codes", _DECODED),
            default=REQUIRED,
            meaning="what the numbers of codes are multiplied by",
            refusals=MappingProxyType({"dtype": "QUANT-9", "shape": "QUANT-9"}),
        ),
        codes("codes", "codes to decode", "QUANT-1", _DECODED),
    ),
    (zero_point("zero_points", "codes", _DECODED), ENCODING),
    (Output("dequantized", _DECODED, rule="QUANT-1", since=_SINCE),),
    headless=True,
)

DEQUANTIZE_BLOCKS = Operation(
    (
        Argument(
            "scales",
            "array",
            "scale of each block",
            ("data",),
            "QUANT-6",
            (BATCH, "N", "U"),
            refusals=REFUSED,
            since=_SINCE,
        ),
        codes("packed", "bytes of each block after its scale", "QUANT-6", (BATCH, "N", "U", "Y")),
    ),
    (_word("blocks", tuple(BLOCKS), "how the bytes of a block hold its codes", "QUANT-6"),),
    (Output("dequantized", (BATCH, "N", f"U*{OF_BLOCK}"), rule="QUANT-6", since=_SINCE),),
)

LOW_PRECISION_ATTENTION = Operation(
    (
        replace(
            scale("query_scales", "query codes", _QUERIES),
            default=REQUIRED,
            meaning="what the numbers of query codes are multiplied by",
        ),
        codes("query_codes", "codes of the queries", "QUANT-10", _QUERIES),
        codes("key_codes", "codes of the keys", "QUANT-10", _KEYS),
        codes("value_codes", "codes of the values", "QUANT-10", _VALUES),
    ),
    (*_OF_KEYS, ENCODING, *_OPTIONS),
    _RESULTS,
    headless=True,
    reduces="attention",
)

"""The companions of the operator: the arguments of the operations that have their own chapters."""

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.attention import BIAS, IS_CAUSAL, KEY, MASK, QUERY, RETURN_LSE, SCALE, SOFTCAP
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Argument, Bounds, Operation, Output, Shape


def array(name: str, meaning: str, rule: str, shape: Shape, /, **refusals: str) -> Argument:
    """Declare an operand, with the rules that refuse its faults."""
    refused = MappingProxyType({"dtype": "ERR-2", **refusals})
    return Argument(name, "array", meaning, ("data",), rule, shape, refusals=refused)


def _weight(name: str, rule: str, shape: Shape, **refusals: str) -> Argument:
    meaning = f"projects to {name.partition('_')[0]}{'' if name.startswith('output') else ' vectors'}"
    return array(name, meaning, rule, shape, mixed="ERR-1", shape="PROJ-4", **refusals)


def _bias(name: str, shape: Shape) -> Argument:
    one = array(name, "added to the product with that weight", "PROJ-3", shape, shape="PROJ-6")
    return replace(one, default=None)


def per_entry(name: str, meaning: str, rule: str, **refusals: str) -> Argument:
    """Declare an integer, or an array with one for each batch entry."""
    return Argument(
        name,
        "integers",
        meaning,
        ("form",),
        rule,
        (BATCH,),
        "integer",
        refusals=MappingProxyType({"form": "ERR-16", "dtype": "ERR-16", "shape": "ERR-16", **refusals}),
    )


def _number_of_heads(name: str, binds: str, rule: str) -> Argument:
    return Argument(
        name,
        "integer",
        f"number of {name.replace('_', ' ')}",
        ("form",),
        rule,
        binds=binds,
        bounds=Bounds(1),
        refusals=MappingProxyType({"form": "ERR-16", "bounds": rule, "shape": rule}),
    )


def _turning(tokens: Argument, *weights: Argument) -> tuple[Argument, ...]:
    """Exchange the axes of all arrays in the column convention, of weights only in the linear convention."""
    turned = (replace(weight, turns=("column", "linear")) for weight in weights)
    return replace(tokens, turns=("column",)), *turned


def _of_linear_layers(*weights: Argument) -> Iterator[Argument]:
    """Let only the linear convention exchange the axes of weights."""
    return (replace(weight, turns=("linear",)) for weight in weights)


_CONVENTION = Argument("convention", "word", "axis order of tokens, weights and result", ("form",), "PROJ-1",
    default="row", words=("row", "column", "linear"),
    refusals=MappingProxyType({"form": "ERR-16"}))  # fmt: skip

PROJECTION = Operation(
    _turning(
        array("tokens", "tokens to project", "PROJ-1", (BATCH, "N", "E"), axes="ERR-16"),
        replace(_weight("weight", "PROJ-1", ("E", "F")), meaning="weight that tokens are multiplied by"),
    ),
    (replace(_bias("bias", ("F",)), meaning="added to every projected token"), _CONVENTION),
    (Output("projected", (BATCH, "N", "F"), turns=("column",), rule="PROJ-1"),),
)

SCORES = Operation(
    (QUERY, KEY),
    (SCALE, SOFTCAP, BIAS),
    (Output("scores", (BATCH, "Hq", "L", "S"), rule="SCORE-1"),),
    headless=True,
)

SELF_ATTENTION = Operation(
    _turning(
        array("tokens", "tokens that attend to each other", "PROJ-5", (BATCH, "L", "E"), axes="ERR-16"),
        _weight("query_weight", "PROJ-5", ("E", "D")),
        _weight("key_weight", "PROJ-5", ("E", "D"), D="SHAPE-6"),
        _weight("value_weight", "PROJ-5", ("E", "Dv")),
    ),
    (
        _bias("query_bias", ("D",)),
        _bias("key_bias", ("D",)),
        _bias("value_bias", ("Dv",)),
        _CONVENTION,
        SCALE,
        replace(MASK, shape=(BATCH, "L", "L")),
        IS_CAUSAL,
    ),
    (Output("output", (BATCH, "L", "Dv"), turns=("column",), rule="PROJ-5"),),
)

SPLIT_HEADS = Operation(
    (array("features", "features of all heads, side by side", "HEAD-3", (BATCH, "N", "H*D"), axes="ERR-16"),),
    (_number_of_heads("heads", "H", "HEAD-5"),),
    (Output("split", (BATCH, "H", "N", "D"), rule="HEAD-3"),),
)

MERGE_HEADS = Operation(
    (array("split", "features of each head", "HEAD-4", (BATCH, "H", "N", "D"), axes="ERR-16"),),
    (),
    (Output("merged", (BATCH, "N", "H*D"), rule="HEAD-4"),),
)

MULTI_HEAD_ATTENTION = Operation(
    (
        array("tokens", "tokens that queries are projected from", "HEAD-6", (BATCH, "L", "E"), axes="ERR-16"),
        *_of_linear_layers(
            _weight("query_weight", "HEAD-6", ("E", "Hq*D"), **{"Hq*D": "HEAD-5"}),
            _weight("key_weight", "HEAD-6", ("E'", "Hkv*D"), **{"Hkv*D": "SHAPE-6"}),
            _weight("value_weight", "HEAD-6", ("E'", "Hkv*Dv"), **{"Hkv*Dv": "HEAD-5"}),
            _weight("output_weight", "HEAD-6", ("Hq*Dv", "F")),
        ),
    ),
    (
        _number_of_heads("heads", "Hq", "HEAD-5"),
        replace(_number_of_heads("key_heads", "Hkv", "HEAD-2"), default=None),
        replace(
            array(
                "memory",
                "tokens that keys and values are projected from; `tokens` by default",
                "HEAD-7",
                (BATCH, "S", "E'"),
                mixed="ERR-1",
                shape="SHAPE-6",
            ),
            default=None,
        ),
        _bias("query_bias", ("Hq*D",)),
        _bias("key_bias", ("Hkv*D",)),
        _bias("value_bias", ("Hkv*Dv",)),
        _bias("output_bias", ("F",)),
        replace(_CONVENTION, meaning="axis order of weights", rule="PROJ-7", words=("row", "linear")),
        SCALE,
        MASK,
        IS_CAUSAL,
    ),
    (Output("output", (BATCH, "L", "F"), rule="HEAD-6"),),
    otherwise=MappingProxyType({"Hkv": ("key_heads", "Hq"), "S": ("memory", "L"), "E'": ("memory", "E")}),
)

APPEND_CACHE = Operation(
    (
        array(
            "cache", "keys or values of earlier positions", "CACHE-1", (BATCH, "H", "C", "D"), axes="ERR-16"
        ),
        array(
            "new",
            "keys or values to append",
            "CACHE-1",
            (BATCH, "H", "N", "D"),
            mixed="ERR-1",
            shape="ERR-16",
        ),
    ),
    (
        replace(
            per_entry(
                "lengths",
                "number of positions that the cache holds",
                "CACHE-1",
                bounds="CACHE-2",
                entries="CACHE-8",
            ),
            bounds=Bounds(0, "C-N"),
            called="length",
        ),
    ),
    (Output("appended", (BATCH, "H", "C", "D"), rule="CACHE-1"),),
    headless=True,
)

GATHER_PAGES = Operation(
    (
        array("pages", "pages of keys or values", "CACHE-4", ("P", "H", "K", "D"), shape="ERR-16"),
        Argument(
            "block_table",
            "array",
            "page numbers of each sequence, in order",
            ("form",),
            "CACHE-4",
            (BATCH, "T"),
            "integer",
            bounds=Bounds(-1, "P", below=True),
            refusals=MappingProxyType({"dtype": "ERR-16", "axes": "ERR-16", "bounds": "CACHE-5"}),
            called="page",
        ),
    ),
    (),
    (Output("gathered", (BATCH, "H", "T*K", "D"), rule="CACHE-4"),),
)

MERGE_PARTIALS = Operation(
    (
        array("outputs", "output of each part", "CACHE-6", ("M", BATCH, "H", "L", "Dv"), axes="ERR-16"),
        replace(
            array("lses", "lse of each part", "CACHE-6", ("M", BATCH, "H", "L"), shape="ERR-16"),
            numbers="lse",
            minus_infinity=True,
            refusals=MappingProxyType({"dtype": "NUM-7", "shape": "ERR-16"}),
        ),
    ),
    (RETURN_LSE,),
    (
        Output("output", (BATCH, "H", "L", "Dv"), rule="CACHE-6"),
        Output("lse", (BATCH, "H", "L"), "lse", option="return_lse", rule="CACHE-6"),
    ),
    headless=True,
)

"""Rotary embedding, its frequencies, and ALiBi: the arguments of the chapter `positions`."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.attention import IS_CAUSAL, KEY, KEY_POSITIONS, QUERY, QUERY_OFFSET, QUERY_POSITIONS
from attnspec.operations.companions import array, per_entry
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Argument, Bounds, Numbers, Operation, Output, Shape

_TOGETHER = "POS-17"
_OF_SCALING = "POS-25"
_TABLE = ("C", "R/2")


def _given(
    name: str,
    meaning: str,
    rule: str,
    shape: Shape,
    numbers: Numbers = "floating",
    needs: tuple[str, ...] = (),
    excludes: tuple[str, ...] = (),
) -> Argument:
    """Declare an array that may be given, and that no gradient is computed for."""
    refusals = {"dtype": "ERR-16", "shape": "ERR-16"}
    if needs or excludes:
        refusals["alone"] = _TOGETHER
    if numbers == "floating":
        refusals |= {"dtype": "ERR-2", "mixed": "ERR-1"}
    return Argument(
        name,
        "array",
        meaning,
        ("form",),
        rule,
        shape,
        numbers,
        default=None,
        needs=needs,
        excludes=excludes,
        refusals=refusals,
    )


def _number(name: str, meaning: str, rule: str, default: float | None, bounds: Bounds | None) -> Argument:
    return Argument(
        name, "number", meaning, ("form",), rule, default=default, bounds=bounds, refusals=_of(_OF_SCALING)
    )


def _length(name: str, meaning: str, rule: str) -> Argument:
    bounds, refusals = Bounds(1), _of(_OF_SCALING, form="ERR-16")
    return Argument(name, "integer", meaning, ("form",), rule, default=None, bounds=bounds, refusals=refusals)


def _of(rule: str, form: str = "") -> Mapping[str, str]:
    return MappingProxyType({"form": form or rule, "bounds": rule})


_POSITIVE = Bounds(0, above=True)
_BASE, _ROTARY_DEPTH = (
    Argument("base", "number", "base of the angles", ("form",), "POS-1", default=10000.0, bounds=_POSITIVE,
        refusals=_of("POS-9")),
    Argument("rotary_depth", "integer", "number of features that are rotated; all by default", ("form",),
        "POS-4", default=None, binds="R", bounds=Bounds(2, "D", step=2),
        refusals=_of("POS-6", form="ERR-16")),
)  # fmt: skip
_FEATURES = array("features", "features to rotate", "POS-1", (BATCH, "H", "N", "D"), axes="ERR-16")
#: All features are rotated if no depth is given.
_WHOLE = MappingProxyType({"R": ("rotary_depth", "D")})

ROTARY = Operation(
    (_FEATURES,),
    (
        _given(
            "positions",
            "position of each row, in any order",
            "POS-10",
            (BATCH, "N"),
            "integer",
            excludes=("axis_positions",),
        ),
        replace(per_entry("offset", "position of row 0; added to given positions", "POS-5"), default=0),
        _BASE,
        _given(
            "inverse_frequencies",
            "angle of each pair at position 1; from the base by default",
            "POS-11",
            ("R/2",),
            "lse",
            excludes=("cosines", "sines"),
        ),
        Argument(
            "attention_factor",
            "number",
            "factor of the rotated features",
            ("form",),
            "POS-14",
            default=1.0,
            refusals=_of("ERR-16"),
        ),
        _given(
            "cosines",
            "cosine of each pair at each position, instead of angles",
            "POS-12",
            _TABLE,
            needs=("sines",),
        ),
        _given("sines", "sine of each pair at each position", "POS-12", _TABLE, needs=("cosines",)),
        _given(
            "axis_positions",
            "positions of each row on several axes",
            "POS-15",
            ("A", BATCH, "N"),
            "integer",
            needs=("sections",),
        ),
        replace(
            _given(
                "sections",
                "number of pairs that take their position from each axis",
                "POS-15",
                ("A",),
                "integer",
                needs=("axis_positions",),
            ),
            sums="R/2",
            refusals={"dtype": "ERR-16", "shape": "ERR-16", "alone": _TOGETHER, "bounds": "POS-16"},
            called="section",
        ),
        Argument(
            "interleaved",
            "flag",
            "pairs are adjacent features",
            ("form",),
            "POS-3",
            default=False,
            refusals=IS_CAUSAL.refusals,
        ),
        _ROTARY_DEPTH,
    ),
    (Output("rotated", (BATCH, "H", "N", "D"), rule="POS-1"),),
    headless=True,
    otherwise=_WHOLE,
)

#: What each scaling needs (POS-25).
NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "linear": ("factor",),
        "dynamic": ("factor", "original_length", "length"),
        "yarn": ("factor", "original_length"),
        "longrope": ("factor", "original_length", "length", "short_factors", "long_factors"),
        "llama3": ("factor", "original_length"),
    }
)

ROTARY_FREQUENCIES = Operation(
    (replace(_FEATURES, meaning="features to rotate; only the shape and dtype are used"),),
    (
        replace(_BASE, meaning="base of the frequencies", rule="POS-18"),
        _ROTARY_DEPTH,
        Argument(
            "scaling",
            "word",
            "how the frequencies are stretched",
            ("form",),
            "POS-18",
            default="none",
            words=("none", *NEEDED),
            refusals=MappingProxyType({"form": "ERR-16"}),
        ),
        _number("factor", "how many times longer sequences become", "POS-19", None, _POSITIVE),
        _length("original_length", "length of the sequences of the training", "POS-20"),
        _length("length", "length of the sequence at hand", "POS-20"),
        _number("beta_fast", "rotations from which a pair is not stretched", "POS-21", 32.0, _POSITIVE),
        _number("beta_slow", "rotations to which a pair is stretched", "POS-21", 1.0, _POSITIVE),
        Argument(
            "truncate",
            "flag",
            "the range of pairs that are stretched in part is rounded outward",
            ("form",),
            "POS-21",
            default=True,
            refusals=IS_CAUSAL.refusals,
        ),
        _number("mscale", "growth of the attention factor", "POS-22", 1.0, Bounds(0)),
        _number("mscale_all_depth", "growth that the scale of attention has too", "POS-22", 0.0, Bounds(0)),
        _given("short_factors", "factor of each pair, up to the original length", "POS-23", ("R/2",), "lse"),
        _given("long_factors", "factor of each pair, past the original length", "POS-23", ("R/2",), "lse"),
        _number("low_frequency_factor", "rotations to which a pair is stretched", "POS-24", 1.0, _POSITIVE),
        _number(
            "high_frequency_factor", "rotations from which a pair is not stretched", "POS-24", 4.0, _POSITIVE
        ),
        Argument(
            "return_attention_factor",
            "flag",
            "return the attention factor too",
            ("asks",),
            "POS-18",
            default=False,
            refusals=IS_CAUSAL.refusals,
        ),
    ),
    (
        Output("inverse_frequencies", ("R/2",), "lse", rule="POS-18"),
        Output("attention_factor", (), "lse", option="return_attention_factor", rule="POS-18"),
    ),
    headless=True,
    otherwise=_WHOLE,
)

ALIBI_BIAS = Operation(
    # Only their shapes are used, so their dtypes may differ.
    (
        replace(QUERY, meaning="queries; only the shape and dtype are used"),
        replace(
            KEY,
            meaning="keys; only the shape and dtype are used",
            refusals={key: rule for key, rule in KEY.refusals.items() if key != "mixed"},
        ),
    ),
    (
        replace(QUERY_OFFSET, role=("form",), rule="POS-8", matters_with=()),
        replace(QUERY_POSITIONS, role=("form",), matters_with=()),
        replace(
            KEY_POSITIONS, role=("form",), meaning=KEY_POSITIONS.meaning.removesuffix("; negative for no key")
        ),
        _given("slopes", "slope of each head, instead of the sequence", "POS-26", ("Hq",), "lse"),
    ),
    (Output("bias", (BATCH, "Hq", "L", "S"), rule="POS-8"),),
    headless=True,
)

"""Malformed calls: each breaks one rule by one argument, and has to be refused by that argument's name."""

import numpy as np

#: Sizes of all axes differ, so that none passes for another: B 2, Hq 4, Hkv 2, L 3, S 5, D 8, Dv 6.
QUERY, KEY, VALUE = np.ones((2, 4, 3, 8)), np.ones((2, 2, 5, 8)), np.ones((2, 2, 5, 6))
TOKENS, MEMORY = np.ones((2, 3, 5)), np.ones((2, 7, 5))
WEIGHT, OUTPUT_WEIGHT = np.ones((5, 8)), np.ones((8, 6))
CACHE, NEW = np.ones((2, 3, 6, 4)), np.ones((2, 3, 2, 4))
PAGES, OUTPUTS, LSES = np.ones((4, 3, 2, 5)), np.ones((2, 4, 3, 5)), np.ones((2, 4, 3))
FEATURES = np.ones((2, 3, 5, 6))

#: A good call of each operation, which the malformed ones change.
GOOD = {
    "attention": {"query": QUERY, "key": KEY, "value": VALUE},
    "scores": {"query": QUERY, "key": KEY},
    "projection": {"tokens": TOKENS, "weight": WEIGHT},
    "self_attention": {
        "tokens": TOKENS,
        "query_weight": WEIGHT,
        "key_weight": WEIGHT,
        "value_weight": WEIGHT,
    },
    "split_heads": {"features": FEATURES, "heads": 2},
    "merge_heads": {"split": FEATURES},
    "multi_head_attention": {
        "tokens": TOKENS,
        "query_weight": WEIGHT,
        "key_weight": WEIGHT,
        "value_weight": WEIGHT,
        "output_weight": OUTPUT_WEIGHT,
        "heads": 4,
    },
    "append_cache": {"cache": CACHE, "new": NEW, "lengths": 3},
    "gather_pages": {"pages": PAGES, "block_table": np.array([[0, 3, 1]])},
    "merge_partials": {"outputs": OUTPUTS, "lses": LSES},
    "rotary": {"features": FEATURES},
    "alibi_bias": {"query": QUERY, "key": KEY},
}


NUMBERS = {"nan": np.nan, "infinity": np.inf, "boolean": True, "string": "1", "array": np.ones(())}
FLAGS = {"integer": 1, "none": None, "string": "yes", "array": np.ones((), bool)}
NO_INTEGERS = {
    "float": 1.0,
    "boolean": True,
    "string": "1",
    "floats": np.ones(2),
    "booleans": np.ones(2, bool),
}
NOT_EACH_ENTRY = {
    "each-query": np.ones(3, int),
    "one-entry": np.ones(1, int),
    "no-axis": np.ones((), int),
}
QUERY_IDS, KEY_IDS = {"query_segment_ids": np.ones((2, 3), int)}, {"key_segment_ids": np.ones((2, 5), int)}
KEPT = {"dropout_mask": np.ones((3, 5), bool)}

#: Argument, rule, malformed values by what is wrong with them, and what else the call takes.
ATTENTION = [
    ("query", "ERR-2", {"integers": QUERY.astype(int), "booleans": QUERY > 0, "complex": QUERY * 1j}),
    ("query", "SHAPE-1", {"one-axis": np.ones(8)}),
    ("query", "ERR-5", {"no-depth": QUERY[..., :0]}),
    ("key", "ERR-1", {"dtype": KEY.astype(np.float32)}),
    ("key", "ERR-2", {"integers": KEY.astype(np.int32)}),
    ("key", "SHAPE-6", {"depth": KEY[..., :7], "batch-of-one": KEY[:1], "lost-axis": KEY[0]}),
    ("key", "HEAD-2", {"heads": np.ones((2, 3, 5, 8))}),
    ("value", "ERR-1", {"dtype": VALUE.astype(np.float32)}),
    ("value", "ERR-2", {"booleans": VALUE > 0}),
    ("value", "ERR-5", {"no-depth": VALUE[..., :0]}),
    ("value", "SHAPE-6", {"positions": VALUE[..., :4, :], "batch-of-one": VALUE[:1]}),
    ("value", "HEAD-2", {"heads": np.ones((2, 4, 5, 6))}),
    ("scale", "ERR-6", {**NUMBERS, "beyond-floats": 10**400, "complex": 1j}),
    ("softcap", "SCORE-6", {**NUMBERS, "zero": 0, "negative": -1.0}),
    ("bias", "ERR-2", {"integers": np.ones((3, 5), int), "booleans": np.ones((3, 5), bool)}),
    ("bias", "SCORE-4", {"positions": np.ones((3, 4)), "axes": np.ones((1, 2, 4, 3, 5))}),
    ("mask", "ERR-4", {"integers": np.ones((3, 5), int), "floats": np.ones((3, 5))}),
    ("mask", "MASK-1", {"transposed": np.ones((5, 3), bool), "key-heads": np.ones((2, 3, 5), bool)}),
    ("is_causal", "ERR-3", FLAGS),
    ("return_lse", "ERR-3", FLAGS),
    ("return_weights", "ERR-3", FLAGS),
    ("query_offset", "ERR-8", {**NO_INTEGERS, **NOT_EACH_ENTRY}),
    ("query_lengths", "ERR-8", {**NO_INTEGERS, **NOT_EACH_ENTRY}),
    ("query_lengths", "ERR-9", {"negative": -1, "beyond": 4, "one-negative": np.array([3, -1])}),
    ("key_lengths", "ERR-8", {**NO_INTEGERS, **NOT_EACH_ENTRY}),
    ("key_lengths", "ERR-9", {"negative": -1, "beyond": 6, "one-beyond": np.array([6, 5])}),
    ("window", "ERR-7", {"integer": 2, "single": (2,), "three": (1, 1, 1), "negative": (-1, 0)}),
    ("window", "ERR-7", {"float": (1.0, 0), "boolean": (True, 0), "string": "12", "strings": ("1", "2")}),
    ("sinks", "ERR-11", {"key-heads": np.ones(2), "one": np.ones(1), "batch": np.ones((2, 4))}),
    ("sinks", "ERR-2", {"integers": np.ones(4, int), "booleans": np.ones(4, bool)}),
    ("dropout_rate", "DROP-4", {"without-mask": 0.5}),
    ("dropout_rate", "DROP-4", {**NUMBERS, "one": 1, "negative": -0.1}, KEPT),
    ("dropout_mask", "ERR-4", {"integers": np.ones((3, 5), int)}),
    ("dropout_mask", "DROP-1", {"positions": np.ones((3, 4), bool)}),
    ("query_segment_ids", "ERR-10", {"alone": None}, KEY_IDS),
    ("query_segment_ids", "ERR-10", {"floats": np.ones((2, 3)), "positions": np.ones((2, 5), int)}, KEY_IDS),
    ("key_segment_ids", "ERR-10", {"alone": None, "no-batch": np.ones(5, int)}, QUERY_IDS),
    ("key_segment_ids", "ERR-10", {"booleans": np.ones((2, 5), bool)}, QUERY_IDS),
]
COMPANIONS = {
    "scores": [
        ("key", "SHAPE-6", {"depth": KEY[..., :7]}),
        ("softcap", "SCORE-6", {"negative": -1.0}),
    ],
    "projection": [
        ("tokens", "ERR-2", {"integers": TOKENS.astype(int)}),
        ("weight", "PROJ-4", {"transposed": WEIGHT.T, "batch": np.ones((2, 5, 8))}),
        ("weight", "ERR-2", {"booleans": WEIGHT > 0}),
        ("bias", "PROJ-3", {"tokens": np.ones(3), "matrix": np.ones((3, 8)), "integers": np.ones(8, int)}),
        ("convention", "PROJ-1", {"word": "rows", "boolean": True}),
    ],
    "self_attention": [
        ("key_weight", "SHAPE-6", {"features": WEIGHT[:, :7]}),
        ("value_weight", "PROJ-4", {"transposed": WEIGHT.T}),
        ("query_bias", "PROJ-3", {"tokens": np.ones(3)}),
        ("scale", "ERR-6", {"string": "1"}),
        ("is_causal", "ERR-3", {"integer": 1}),
    ],
    "split_heads": [
        ("features", "ERR-2", {"booleans": FEATURES > 0}),
        (
            "heads",
            "HEAD-5",
            {"four": 4, "zero": 0, "negative": -2, "float": 2.0, "boolean": True},
        ),
    ],
    "merge_heads": [("split", "HEAD-4", {"two-axes": np.ones((3, 4))})],
    "multi_head_attention": [
        ("heads", "HEAD-5", {"zero": 0, "float": 4.0}),
        ("key_heads", "HEAD-2", {"three": 3, "more": 8}),
        ("query_weight", "HEAD-5", {"columns": np.ones((5, 6))}),
        ("key_weight", "HEAD-6", {"columns": np.ones((5, 4))}),
        ("value_weight", "HEAD-5", {"columns": np.ones((5, 6))}),
        ("output_weight", "PROJ-4", {"transposed": OUTPUT_WEIGHT.T}),
        ("memory", "SHAPE-6", {"batch-of-one": MEMORY[:1], "lost-axis": MEMORY[0]}),
        ("memory", "ERR-1", {"dtype": MEMORY.astype(np.float32)}),
        ("mask", "MASK-1", {"memory": np.ones((3, 7), bool)}),
    ],
    "append_cache": [
        ("lengths", "CACHE-2", {"negative": -1, "beyond": 5, "one-beyond": np.array([0, 5])}),
        ("lengths", "CACHE-1", {**NO_INTEGERS, **NOT_EACH_ENTRY}),
        ("lengths", "CACHE-2", {"of-a-full-cache": 0}, {"new": np.ones((2, 3, 7, 4))}),
        ("new", "SHAPE-6", {"depth": NEW[..., :3], "heads": NEW[:, :1]}),
        ("new", "ERR-1", {"dtype": NEW.astype(np.float32)}),
    ],
    "gather_pages": [
        ("block_table", "CACHE-5", {"beyond": np.array([[0, 4]]), "negative": np.array([-1])}),
        ("block_table", "CACHE-4", {"floats": np.ones((1, 2)), "booleans": np.ones((1, 2), bool)}),
        ("pages", "CACHE-4", {"axes": np.ones((4, 2, 5))}),
    ],
    "merge_partials": [
        ("lses", "CACHE-6", {"parts": np.ones((3, 4, 3)), "depth": np.ones((2, 4, 3, 5))}),
        ("lses", "NUM-7", {"half": LSES.astype(np.float16), "integers": LSES.astype(int)}),
        ("return_lse", "ERR-3", {"integer": 1}),
    ],
    "rotary": [
        (
            "rotary_depth",
            "POS-6",
            {"odd": 3, "zero": 0, "negative": -2, "beyond": 8, "float": 4.0},
        ),
        ("features", "ERR-2", {"integers": FEATURES.astype(int)}),
        ("base", "POS-1", {**NUMBERS, "zero": 0.0}),
        ("offset", "POS-5", {**NO_INTEGERS, **NOT_EACH_ENTRY}),
        ("interleaved", "ERR-3", FLAGS),
    ],
    "alibi_bias": [
        ("key", "SHAPE-6", {"depth": KEY[..., :7]}),
        ("query_offset", "ERR-8", NO_INTEGERS),
    ],
}


def _calls(operation, entries):
    for argument, rule, values, *also in entries:
        for wrong, value in values.items():
            arguments = GOOD[operation] | (also[0] if also else {}) | {argument: value}
            yield f"{operation}-{argument}-{wrong}", (operation, arguments, argument, rule)


#: Id to operation, arguments, the argument at fault, rule.
MALFORMED = {
    name: call
    for operation, entries in {"attention": ATTENTION, **COMPANIONS}.items()
    for name, call in _calls(operation, entries)
}

#: No arrays where arrays are wanted: NumPy's functions make them of it, those of the Array API do not.
NO_ARRAYS = {
    name: call
    for operation, argument, rule, values in (
        ("attention", "query", "ERR-2", {"list": [[1.0]]}),
        ("attention", "value", "ERR-2", {"list": [[1.0]]}),
        ("attention", "bias", "SCORE-4", {"list": [0.0], "number": 0.0}),
        ("attention", "mask", "ERR-4", {"list": [True], "boolean": True}),
        ("attention", "query_offset", "ERR-8", {"list": [1, 1], "tuple": (1, 1)}),
        ("attention", "key_lengths", "ERR-8", {"list": [1, 1], "tuple": (1, 1)}),
        ("attention", "sinks", "ERR-11", {"list": [0.0] * 4, "number": 0.0}),
        ("projection", "weight", "ERR-2", {"list": [[1.0]] * 5}),
        ("split_heads", "features", "ERR-2", {"list": [[1.0]]}),
        ("gather_pages", "block_table", "CACHE-4", {"list": [0], "number": 0}),
        ("rotary", "features", "ERR-2", {"list": [[1.0, 2.0]], "number": 1.0}),
    )
    for name, call in _calls(operation, [(argument, rule, values)])
}

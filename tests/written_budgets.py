"""Calls with their budgets by the code, and by the formulas of the page."""

from functools import partial

import numpy as np
from budget_calls import CALLS, PLAIN, random, small
from formulas import Numbers, Zeros, formulas, profiles, symbols

from attnspec.conformance.relations.rounding_bias import signed_mean, signed_sum
from attnspec.dtypes import FORMATS, SHORT
from attnspec.reference import alibi_bias, rotary, rotary_frequencies
from attnspec.reference.budget.budget import budget
from attnspec.reference.call import Steps
from attnspec.reference.frequencies import Frequencies, yarn_range
from attnspec.reference.masking import allowed_keys

OF_ATTENTION = ("Scores", "Weights", "Output", "Lse", "Maximum", "Weights of 8 bits", "Shards")
MASKING = ("mask", "bias", "is_causal")

KINDS = [
    *((dtype, accuracy, "") for dtype in SHORT for accuracy in ("full", "cast", "storage")),
    ("float32", "full", ""),
    ("float64", "full", ""),
    *((dtype, "cast" if dtype in SHORT else "full", name) for name, dtype in profiles()),
]


def of_attention(arguments, known, lines):
    """The numbers of a call of one head."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    scale = arguments.get("scale", query.shape[-1] ** -0.5)
    softcap, bias = arguments.get("softcap"), arguments.get("bias")
    x = scale * query @ key.T
    if arguments.get("capped_bias"):
        s = softcap * np.tanh((x + bias) / softcap)
    else:
        s = (x if softcap is None else softcap * np.tanh(x / softcap)) + (0 if bias is None else bias)
    allowed = allowed_keys(s.shape, **{name: arguments[name] for name in MASKING if name in arguments})
    largest = np.where(allowed, s, -np.inf).max(axis=-1)
    keys = [[int(j) for j in np.flatnonzero(row)] for row in allowed]
    kept = arguments.get("dropout_mask", np.ones(s.shape)) / (1 - arguments.get("dropout_rate", 0.0))
    sink = len(key)
    if "sinks" in arguments:
        s, allowed, kept = (
            np.concatenate([array, np.full((len(s), 1), one)], axis=-1)
            for array, one in ((s, arguments["sinks"][0]), (allowed, True), (kept, 1.0))
        )
        value = np.concatenate([value, np.zeros((1, value.shape[-1]))])
        keys = [[*row, sink] for row in keys]
    shifted = np.where(allowed, np.exp(s - np.where(allowed, s, -np.inf).max(axis=-1, keepdims=True)), 0)
    p = shifted / shifted.sum(axis=-1, keepdims=True)
    top = np.where(allowed, s, -np.inf).max(axis=-1)
    numbers = {
        "D": query.shape[-1],
        "shards": arguments.get("shards", 1),
        "scale": scale,
        "softcap": softcap,
        "bias": bias,
        "dropout": "dropout_mask" in arguments,
        "dropout_rate": arguments.get("dropout_rate", 0.0),
        "keys": keys,
        "count": [len(row) for row in keys],
        "lse": top + np.log(shifted.sum(axis=-1)),
        "output": (kept * p) @ value,
        "query": query,
        "key": key,
        "value": value,
        "query_error": arguments.get("query_error", Zeros()),
        "key_error": arguments.get("key_error", Zeros()),
        "value_error": arguments.get("value_error", Zeros()),
    }
    numbers |= {"x": x, "s": s, "p": p, "kept": kept, "largest": largest, "sink": sink}
    return Numbers(known | numbers, lines)


def elements(name, numbers, shape):
    """All elements of a budget by the page."""
    if not shape:
        return np.asarray(numbers[name])
    return np.array(
        [float(numbers[name][index if len(index) > 1 else index[0]]) for index in np.ndindex(*shape)]
    ).reshape(shape)


def attention_by_page(name, dtype, accuracy, profile):
    call = CALLS[name]
    options = {"accuracy": accuracy, "profile": profile, "capped_bias": call.get("capped_bias", False)}
    arguments = {key: x for key, x in call.items() if key != "capped_bias"}
    allowed = budget("attention", arguments | {"return_max": True}, dtype, **options)
    given = {key: arguments[key] for key in ("query", "key", "scale", "softcap", "bias") if key in arguments}
    allowed |= budget("scores", given, dtype, **options)
    after = formulas("Scores", block=1) if options["capped_bias"] else []
    numbers = of_attention(call, symbols(dtype, accuracy, profile), [*formulas(*OF_ATTENTION), *after])
    for output, found in allowed.items():
        yield found, elements(f"{output}_budget", numbers, found.shape)


def self_attention_by_page(dtype, accuracy, profile):
    """Queries, keys and values inherit the errors of their projections."""
    tokens, known = random(3, 4), symbols(dtype, accuracy, profile)
    weights = {name: random(4, 4, seed=i) for i, name in enumerate(("query", "key", "value"))}
    given = {f"{name}_weight": weight for name, weight in weights.items()}
    given["scale"] = -0.4
    found = budget("self_attention", {"tokens": tokens, **given}, dtype, accuracy=accuracy, profile=profile)
    call = {"scale": -0.4}
    for name, weight in weights.items():
        call[name] = tokens @ weight
        call[f"{name}_error"] = elements("projected_budget", projection(tokens, weight, None, known), (3, 4))
    numbers = of_attention(call, known, formulas(*OF_ATTENTION))
    allowed = elements("output_budget", numbers, (3, 4))
    yield found["output"], allowed
    given |= {"output_weight": random(4, 4, seed=3), "heads": 1, "tokens": tokens}
    found = budget("multi_head_attention", given, dtype, accuracy=accuracy, profile=profile)
    last = projection(numbers["output"], given["output_weight"], None, known | {"tokens_error": allowed})
    yield found["output"], elements("projected_budget", last, (3, 4))


def projection(tokens, weight, bias, known):
    shift = np.zeros(weight.shape[1]) if bias is None else bias
    return Numbers(
        {
            "tokens_error": Zeros(),
            **known,
            "tokens": tokens,
            "weight": weight,
            "shift": shift,
            "biased_by": bias is not None,
            "E": len(weight),
            "projected": tokens @ weight + shift,
        },
        formulas(CODES),
    )


def projection_by_page(dtype, accuracy, profile):
    for tokens in (random(2, 6), 0 * random(2, 6), small(random(2, 6))):
        for bias in (None, random(3)):
            arguments = {"tokens": tokens, "weight": random(6, 3), "bias": bias}
            found = budget("projection", arguments, dtype, accuracy=accuracy, profile=profile)["projected"]
            numbers = projection(tokens, arguments["weight"], bias, symbols(dtype, accuracy, profile))
            yield found, elements("projected_budget", numbers, found.shape)


def indexer_by_page(dtype, accuracy, profile):
    query, key, weights = random(2, 3, 6), random(4, 6), random(2, 3)  # (H, L, D), (S, D), (H, L)
    for size, weight in ((1.0, 1.0), (1e-42, 1.0), (0.0, 1.0), (1.0, 1e-6)):
        given = {"index_query": size * query, "index_key": key, "index_weights": weight * weights}
        found = budget("indexer_scores", given, dtype, accuracy=accuracy, profile=profile)["index_scores"]
        for i, j in np.ndindex(*found.shape):
            dot = np.maximum(size * query[:, i] @ key[j], 0)
            known = {"index_query": size * query[:, i], "index_key": key[j], "dot": dot, "D": 6, "H": 2}
            known |= {"index_weights": weight * weights[:, i], "index_score": weight * weights[:, i] @ dot}
            numbers = Numbers(symbols(dtype, accuracy, profile) | known, formulas(CODES))
            yield found[i, j], numbers["index_budget"]


def codes_by_page(dtype, accuracy, profile):
    """Keys and values, and queries too, have the errors of decoding."""
    codes = {name: np.random.default_rng(i).integers(-9, 9, (3, 3)) for i, name in enumerate("qkv")}
    scales = {"query_scales": 1 / 3 * np.ones((3, 1)), "key_scales": 1 / 7 * np.ones((3, 1))}
    given = {f"{name}_codes": codes[name[0]].astype(np.int8) for name in ("query", "key", "value")}
    if accuracy == "cast":
        profile = "fp8"
    found = budget("low_precision_attention", scales | given, dtype, accuracy=accuracy, profile=profile)
    known = symbols(dtype, accuracy, profile)
    call = {"query": codes["q"] / 3, "key": codes["k"] / 7, "value": codes["v"] / 1.0}
    decoded = Numbers(known, formulas(CODES))["decoded_error"]
    call |= {f"{name}_error": np.vectorize(decoded)(array) for name, array in call.items()}
    numbers = of_attention(call, known, formulas(*OF_ATTENTION))
    yield found["output"], elements("output_budget", numbers, (3, 3))


def merging_by_page(dtype, accuracy, profile):
    for parts, held, top in ((3, (0, 1, 2), 20), (4, (1,), -9), (1, (0,), 2), (3, (0, 2), -20)):
        outputs, lses = random(parts, 1, 2), np.full((parts, 1), -np.inf)
        lses[[*held]] = top + 3 * random(len(held), 1)
        found = budget("merge_partials", {"outputs": outputs, "lses": lses}, dtype, accuracy=accuracy)
        lse = np.log(np.exp(lses[:, 0]).sum())
        share = np.exp(lses[:, 0] - lse)
        known = {"outputs": outputs[:, 0], "lses": lses[:, 0], "lse": lse, "share": share, "M": parts}
        known |= {"held": len(held), "output": share @ outputs[:, 0]}
        distances = np.where(np.isfinite(lses[:, 0]), np.abs(lses[:, 0] - lse), 0)
        far = {} if len(held) == parts else {"far": distances}
        numbers = Numbers(symbols(dtype, accuracy) | known | far, formulas("Merging of partial results"))
        yield found["output"], elements("output_budget", numbers, (2,))[None]
        yield found["lse"], numbers["lse_budget"]


def shards_by_page(dtype, accuracy, profile):
    """Calls of one head, whose keys are in one, two or five shards."""
    options = {"accuracy": accuracy, "profile": profile}
    for name in ("plain", "one key", "all options", "large scores", "zero"):
        call = CALLS[name]
        heads = {key: call[key][None] for key in PLAIN}
        for shards in (1, 2, 5):
            ends = {f"{key}_shards": np.array([0] * shards + [len(call[key])]) for key in ("query", "key")}
            allowed = budget(
                "sharded_attention", call | heads | ends | {"return_max": True}, dtype, **options
            )
            known = symbols(dtype, accuracy, profile)
            parts = {"shards": shards + ("sinks" in call)}
            numbers = of_attention(call | parts, known, formulas(*OF_ATTENTION))
            for output, found in allowed.items():
                yield found[0], elements(f"{output}_budget", numbers, found.shape[1:])


def positions_by_page(dtype, accuracy, profile):
    features, angles = random(3, 6), {"cosines": np.cos(random(9, 3)), "sines": np.sin(random(9, 3))}
    frequencies = {"inverse_frequencies": np.array([1.0, -0.3, 0.1])}
    far = {"inverse_frequencies": np.array([1e-18, -3e-19, 1e-20]), "offset": -(2**60)}
    near = {"inverse_frequencies": np.array([1e-8, -3e-9, 1e-10]), "offset": 3 * 2**23}
    for options in ({}, {"base": 0.5}, frequencies, far, near, angles):
        for more in ({}, {"attention_factor": -1.5}, {"attention_factor": -1.0}, {"attention_factor": 1e-40}):
            for size in (1.0, 1e-42):
                call = {"features": size * features, **options, **more}
                found = budget("rotary", call, dtype, accuracy=accuracy)["rotated"]
                value = rotary(size * features, **options, **more)
                for row in range(3):
                    pos, own = row + options.get("offset", 0), options | more
                    yield (found[row], rotated(size * features[row], value[row], pos, own, dtype, accuracy))
    query, key = random(2, 3, 1), random(2, 4, 1)
    for slopes in (None, np.array([0.3, 0.2])):
        value = alibi_bias(query, key, slopes=slopes)
        found = budget("alibi_bias", {"query": query, "key": key, "slopes": slopes}, dtype, accuracy=accuracy)
        known = {"alibi": value[1], "slopes": slopes, "Hq": 2}
        numbers = Numbers(symbols(dtype, accuracy) | known, formulas(POSITIONS))
        yield found["bias"][1], elements("alibi_budget", numbers, (3, 4))


def rotated(features, value, pos, options, dtype, accuracy):
    """The budgets of one row."""
    frequencies = options.get("inverse_frequencies")
    base, cosines = options.get("base", 10000.0), options.get("cosines")
    angle = pos * (base ** (-np.arange(3) / 3) if frequencies is None else frequencies)
    known = {"pos": pos, "R": 6, "base": base, "inverse_frequencies": frequencies, "angle": angle}
    known |= {"attention_factor": options.get("attention_factor", 1.0), "cosines": cosines}
    known |= {"cosine": np.cos(angle) if cosines is None else cosines[pos]}
    known |= {"sine": np.sin(angle) if cosines is None else options["sines"][pos]}
    known |= {"a": features[:3], "b": features[3:]}
    numbers = Numbers(symbols(dtype, accuracy) | known, formulas(POSITIONS))
    errors = [numbers[name][r] for name in ("first_error", "second_error") for r in range(3)]
    return [numbers["rotated_budget"](x, error) for x, error in zip(value, errors, strict=True)]


def frequencies_by_page(dtype, accuracy, profile):
    factors = {"short_factors": np.array([1, 1.5, 2, 4]), "long_factors": np.array([2.0, 3, 4, 8])}
    stretched = {"factor": 4.0, "original_length": 64, "length": 100}
    for depth, options in (
        (8, {"scaling": "none"}),
        (8, {"scaling": "linear", "base": 0.5}),
        (8, {"scaling": "dynamic"}),
        (8, {"scaling": "dynamic", "factor": 0.5}),
        (8, {"scaling": "yarn", "beta_fast": 4.0}),
        (8, {"scaling": "yarn", "beta_fast": 4.0, "truncate": False}),
        (8, {"scaling": "yarn", "beta_fast": 1.0, "beta_slow": 32.0, "truncate": False}),
        (1024, {"scaling": "yarn", "original_length": 4096, "truncate": False}),
        (8, {"scaling": "longrope", **factors}),
        (8, {"scaling": "llama3", "high_frequency_factor": 9.0, "factor": 0.5}),
    ):
        call = {"base": 500.0, **(stretched if options["scaling"] != "none" else {}), **options}
        features = random(2, depth)
        found = budget("rotary_frequencies", {"features": features, **call}, dtype, accuracy=accuracy)
        value, factor = rotary_frequencies(features, **call, return_attention_factor=True)
        known = {"R": depth, "frequency": value, "truncate": True, **call}
        if options["scaling"] == "yarn":
            own = Frequencies(Steps(), np, None, features, rotary_depth=depth, **call)
            known |= dict(zip(("low", "high"), yarn_range(own), strict=True))
        else:
            known |= {"low": 1.0, "high": options.get("high_frequency_factor", 4.0)}
        numbers = Numbers(symbols(dtype, accuracy) | known, formulas("Frequencies"))
        off = [numbers[options["scaling"]][r] for r in range(depth // 2)]
        yield (
            found["inverse_frequencies"],
            [numbers["frequency_budget"](*pair) for pair in zip(value, off, strict=True)],
        )
        if options["scaling"] in ("yarn", "longrope"):
            yield found["attention_factor"], numbers["attention_factor_budget"](factor)


def signed_mean_by_page(dtype, accuracy, profile):
    """The sum that is just at the bound has the share 1."""
    if dtype not in SHORT or profile:
        return
    p, value = np.full((4, 3), 1 / 3), small(random(3, 2))
    output = p @ value
    allowed = np.full((4, 2), 0.1)
    form = FORMATS[dtype]
    known = {"p": p, "value": value, "output": output, "output_budget": allowed, "sign": np.ones((4, 2))}
    known |= {"rows": range(4), "columns": range(2), "all_keys": range(3)}
    numbers = Numbers(symbols(dtype, accuracy) | known, formulas("The signed mean"))
    got = output.copy()
    got[0, 0] += numbers["bound"]
    cast = (p, value) if accuracy == "cast" else None
    signs = np.sign(output)
    both = [
        numbers["bound"],
        Numbers(symbols(dtype, accuracy) | known | {"sign": signs}, formulas("The signed mean"))["bound"],
    ]
    yield signed_mean(got, output, allowed, dtype=dtype, cast=cast), numbers["bound"] / min(both)
    assert form.name == dtype


def signed_mean_of_a_gradient_by_page(dtype, accuracy, profile):
    """The same for a gradient, with factors that are rounded and with factors that are exact."""
    if dtype not in SHORT or profile:
        return
    factor, other = random(4, 3), random(3, 2, scale=1e-3)
    gradient, allowed, cast = factor @ other, np.full((4, 2), 0.1), accuracy == "cast"
    known = {"factor": factor, "other": other, "gradient": gradient, "gradient_budget": allowed}
    known |= {"rows": range(4), "columns": range(2), "terms_of_sum": range(3), "short": np.ones((4, 3))}
    page = formulas("The signed mean of a gradient")
    bounds = [
        Numbers(symbols(dtype, accuracy) | known | {"sign": sign}, page)["bound"]
        for sign in (np.ones((4, 2)), np.sign(gradient))
    ]
    got = gradient.copy()
    got[0, 0] += bounds[0]
    share = signed_sum(got, gradient, allowed, dtype=dtype, cast=(factor, other) if cast else None)
    yield share, bounds[0] / min(bounds)


CODES, POSITIONS = "Projections, indexers and codes", "Rotary embedding and ALiBi"
CALLS["after-bias"] = {**CALLS["all options"], "capped_bias": True}
OTHERS = {
    "self-attention": self_attention_by_page,
    "projection": projection_by_page,
    "indexer": indexer_by_page,
    "codes": codes_by_page,
    "merging": merging_by_page,
    "shards": shards_by_page,
    "positions": positions_by_page,
    "frequencies": frequencies_by_page,
    "signed mean": signed_mean_by_page,
    "signed mean of a gradient": signed_mean_of_a_gradient_by_page,
}
#: The budgets that need the formulas of a section. All may need those of the others.
USES = {
    CODES: ["self-attention", "projection", "indexer", "codes"],
    POSITIONS: ["positions"],
    "Merging of partial results": ["merging"],
    "Shards": ["shards"],
    "Frequencies": ["frequencies"],
    "The signed mean": ["signed mean"],
    "The signed mean of a gradient": ["signed mean of a gradient"],
}
PROBLEMS = {name: partial(attention_by_page, name) for name in CALLS} | OTHERS

"""Attention in plain Python, without NumPy and without attnspec, over the protocol of attnspec.

attnspec check --program "python attention.py"
"""

import itertools
import json
import math
import struct
import sys
from pathlib import Path

CODES = {"float16": "e", "float32": "f", "float64": "d", "bool": "?", "int64": "q"}
FLOATS = ("float16", "float32", "float64")
OPTIONS = ["scale", "mask", "is_causal", "query_offset", "window"]
HELLO = {
    "protocol": 1,
    "name": "attention.py",
    "version": "1",
    "dtypes": FLOATS,
    "operations": {"attention": [*OPTIONS, "return_lse"], "attention_vjp": [*OPTIONS, "d_lse"]},
}


def read(path, tensor):
    """Return the numbers of a tensor, or none if its dtype is not supported."""
    code = CODES.get(tensor["dtype"])
    numbers = [number for (number,) in struct.iter_unpack(f"<{code}", path.read_bytes())] if code else []
    return tensor | {"data": numbers}


def write(path, dtype, numbers):
    code, largest = f"<{CODES[dtype]}", {"float16": 65520, "float32": 2**128 - 2**103}.get(dtype, math.inf)
    # Python refuses to round to infinity, but the arithmetic of these formats does it.
    rounded = (math.copysign(math.inf, x) if abs(x) >= largest else x for x in numbers)
    path.write_bytes(b"".join(struct.pack(code, x) for x in rounded))


def refuse_unless(fits, message):
    if not fits:
        raise ValueError(message)


def check(query, key, value, mask, scale, offset, window):
    refuse_unless(query["dtype"] in FLOATS, f"query: expected floating-point numbers, got {query['dtype']}")
    for name, tensor in (("key", key), ("value", value)):
        refuse_unless(tensor["dtype"] == query["dtype"], f"{name}: expected the dtype of query")
        same = len(tensor["shape"]) == len(query["shape"]) and tensor["shape"][:-3] == query["shape"][:-3]
        refuse_unless(same, f"{name}: expected the axes and the batch of query")
    refuse_unless(len(query["shape"]) >= 2, "query: expected two axes or more")
    refuse_unless(
        query["shape"][-1] == key["shape"][-1] > 0, "key, query: expected one depth, which is not 0"
    )
    refuse_unless(value["shape"][-1] > 0, "value: expected a depth that is not 0")
    refuse_unless(value["shape"][:-1] == key["shape"][:-1], "value: expected the heads and positions of key")
    heads, shared = ([1, *tensor["shape"]][-3] if len(tensor["shape"]) > 2 else 1 for tensor in (query, key))
    refuse_unless(
        heads % shared == 0 if shared else not heads, "key: expected heads that divide those of query"
    )
    refuse_unless(isinstance(scale, int | float) and math.isfinite(scale), "scale: expected a finite number")
    if mask is not None:
        refuse_unless(mask["dtype"] == "bool", f"mask: expected booleans, got {mask['dtype']}")
        full = [*query["shape"][:-1], key["shape"][-2]]
        own = mask["shape"]
        fits = len(own) <= len(full) and all(a in (1, b) for a, b in zip(own[::-1], full[::-1], strict=False))
        refuse_unless(fits, f"mask: expected a shape that fits {full}, got {own}")
    if isinstance(offset, dict):
        refuse_unless(offset["dtype"] == "int64", "query_offset: expected integers")
        refuse_unless(
            offset["shape"] == query["shape"][:-3], "query_offset: expected one, or one for each batch"
        )
    else:
        refuse_unless(type(offset) is int, f"query_offset: expected an integer, got {offset}")
    if window is not None:
        sides = isinstance(window, list) and len(window) == 2
        good = sides and all(side is None or (type(side) is int and side >= 0) for side in window)
        refuse_unless(good, f"window: expected a pair of None or integers, got {window}")


def weighted_rows(query, key, value, mask=None, scale=None, is_causal=None, query_offset=None, window=None):
    """Each row: where it and its first key stand, the weights of its allowed keys, the scale and the lse."""
    if scale is None:
        scale = 1 / math.sqrt(query["shape"][-1] or 1)
    offset = 0 if query_offset is None else query_offset
    check(query, key, value, mask, scale, offset, window)
    left, right = (math.inf if side is None else side for side in window or (None, None))
    *outer, length, _ = query["shape"]
    keys = value["shape"][-2]
    heads, shared = (outer[-1], key["shape"][-3]) if outer else (1, 1)
    for row, (*place, i) in enumerate(itertools.product(*map(range, (*outer, length)))):
        batch, head = divmod(row // length, heads)
        start = (batch * shared + head // (heads // shared)) * keys
        position = i + (offset["data"][batch] if isinstance(offset, dict) else offset)
        scores = {}  # of the keys that are allowed
        for j in range(keys):
            if (is_causal and j > position) or not position - left <= j <= position + right:
                continue
            if mask is not None and not mask["data"][broadcast(mask["shape"], [*place, i, j])]:
                continue
            score = scale * dot(features(query, row), features(key, start + j))
            if score != -math.inf:
                scores[j] = score
        top = max(scores.values(), default=-math.inf)
        if any(math.isnan(score) or score == math.inf for score in scores.values()):
            yield row, start, dict.fromkeys(scores, math.nan), scale, math.nan
            continue
        exps = {j: math.exp(score - top) for j, score in scores.items()}
        total = math.fsum(exps.values())
        lse = top + math.log(total) if total else -math.inf
        yield row, start, {j: exp / total for j, exp in exps.items()}, scale, lse


def attention(query, key, value, **options):
    output, lses, width = [], [], value["shape"][-1]
    for _, start, weights, _, lse in weighted_rows(query, key, value, **options):
        columns = ([value["data"][(start + j) * width + d] for j in weights] for d in range(width))
        output += [dot(weights.values(), column) for column in columns]
        lses.append(lse)
    rows = query["shape"][:-1]
    return {"output": ([*rows, width], output), "lse": (rows, lses)}


def attention_vjp(query, key, value, d_output, d_lse=None, **options):
    """The gradients of the queries, the keys and the values."""
    rows = weighted_rows(query, key, value, **options)
    first = list(itertools.islice(rows, 1))  # checks the arguments of the forward pass
    expected = [*query["shape"][:-1], value["shape"][-1]]
    for name, tensor, shape in (("d_output", d_output, expected), ("d_lse", d_lse, expected[:-1])):
        if tensor is not None:
            refuse_unless(tensor["shape"] == shape, f"{name}: expected shape {shape}, got {tensor['shape']}")
            dtypes = (query["dtype"],) if name == "d_output" else FLOATS[1:]
            refuse_unless(tensor["dtype"] in dtypes, f"{name}: expected {dtypes}, got {tensor['dtype']}")
    gradients = {name: [0.0] * len(x["data"]) for name, x in zip("qkv", (query, key, value), strict=True)}
    for row, start, weights, scale, _ in itertools.chain(first, rows):
        g, h = features(d_output, row), d_lse["data"][row] if d_lse else 0.0
        dots = {j: dot(g, features(value, start + j)) for j in weights}
        mean = sum(weight * dots[j] for j, weight in weights.items())
        for j, weight in weights.items():
            slope = weight * (dots[j] - mean + h) * scale
            add(gradients["q"], row, slope, features(key, start + j))
            add(gradients["k"], start + j, slope, features(query, row))
            add(gradients["v"], start + j, weight, g)
    named = {"query": query, "key": key, "value": value}
    return {f"d_{name}": (x["shape"], gradients[name[0]]) for name, x in named.items()}


def features(tensor, row):
    depth = tensor["shape"][-1]
    return tensor["data"][row * depth : (row + 1) * depth]


def dot(first, second):
    return sum(a * b for a, b in zip(first, second, strict=True))


def add(data, row, factor, numbers):
    for place, number in enumerate(numbers, start=row * len(numbers)):
        data[place] += factor * number


def broadcast(shape, place):
    """Return the index of an element in the data of a tensor that is broadcast, trailing axes aligned."""
    at = 0
    for length, index in zip(shape, place[len(place) - len(shape) :], strict=True):
        at = at * length + (index if length > 1 else 0)
    return at


def answer(call):
    folder = Path(call["folder"])
    tensors = {name: read(folder / f"{name}.bin", tensor) for name, tensor in call["tensors"].items()}
    options = {name: option for name, option in call["options"].items() if not name.startswith("return_")}
    try:
        results = {"attention": attention, "attention_vjp": attention_vjp}[call["operation"]](
            **tensors, **options
        )
    except ValueError as error:
        return {"id": call["id"], "status": "refused", "message": str(error)}
    said = {}
    for name in call["want"]:
        dtype = "float64" if name == "lse" else tensors["query"]["dtype"]
        shape, numbers = results[name]
        write(folder / f"{name}.bin", dtype, numbers)
        said[name] = {"dtype": dtype, "shape": shape}
    return {"id": call["id"], "status": "ok", "tensors": said}


for line in sys.stdin:
    message = json.loads(line)
    if message["do"] == "stop":
        break
    print(json.dumps(HELLO if message["do"] == "hello" else answer(message)), flush=True)

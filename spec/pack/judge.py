"""Judge an implementation of attention by the pack. It needs Python and NumPy alone.

    python judge.py my_module float32            # each function that has the name of an operation
    python judge.py my_module float16 cast       # the class of budget of half precision: cast or full

A function takes the arrays of its operation by position, options and other arrays by name, and returns an
output, a tuple or a list. The dtype bfloat16 needs the package ml_dtypes.
"""

import importlib
import inspect
import sys
from math import prod
from pathlib import Path

import numpy as np

try:
    import ml_dtypes  # NumPy knows bfloat16 by it
except ModuleNotFoundError:
    ml_dtypes = None

HERE = Path(__file__).parent
FIXED = {"flag": lambda word: word == "1", "integer": int, "number": float, "word": str}
BOUNDS = {"none": None, "true": True, "false": False}
LSE = {"float16": "float32", "bfloat16": "float32"}
MEMORY, LAST = {}, []  # arrays of earlier calls; the last result, with a copy of it
UNNAMED = "expected an error that names the argument at fault, got another"  # breaks a SHOULD, ERR-12
FORWARD = ("output", "lse")  # results of the forward pass, which gradients may take


def number(word):
    """Return the integer or the number that a word is."""
    return int(word) if word.lstrip("-").isdigit() else float(word)


def elements(octets, dtype, place, shape):
    """Return the elements of an array; those of bfloat16 as float32, which holds them all."""
    stored = "uint16" if dtype == "bfloat16" else dtype
    array = np.frombuffer(octets, np.dtype(stored).newbyteorder("<"), prod(shape), int(place)).reshape(shape)
    return (array.astype("uint32") << 16).view("float32") if dtype == "bfloat16" else array


def read(folder=HERE):
    """Yield each case as a dictionary: name, operation, rules, rejection, options, arrays, outputs."""
    case, octets = {}, b""
    for line in (folder / "cases.txt").read_text(encoding="utf-8").splitlines():
        word, *rest = line.split(" ")
        if word == "chapter":
            octets = (folder / f"{rest[0]}.bin").read_bytes()
        elif word == "case":
            case = {"name": rest[0], "operation": rest[1], "rules": [], "catches": []}
            case |= {"options": {}, "arrays": {}, "layout": {}, "outputs": {}}
        elif word == "title":
            case["title"] = line[6:]
        elif word in ("dtypes", "results"):
            case[word] = rest
        elif word == "rule":
            case["rules"].append((rest[0], rest[1]))  # its id; MUST, SHOULD or MAY
        elif word == "catches":
            case["catches"].append(rest[0])
        elif word == "rejection":
            case["rejection"], *case["at_fault"] = rest
        elif word == "array":
            name, kind, dtype, place, _, *shape = rest
            case["arrays"][name] = (
                dtype if kind == "own" else kind,
                elements(octets, dtype, place, [*map(int, shape)]),
            )
        elif word == "layout":
            case["layout"][rest[0]] = [*map(int, rest[1:])]
        elif word == "output":
            name, kind, option, dtype, place, _, *shape = rest
            output = {
                "kind": kind,
                "option": option,
                "expected": elements(octets, dtype, place, [*map(int, shape)]),
                "allowed": {},
            }
            case["outputs"][name] = output
        elif word == "allowed":
            dtype, accuracy, stored, place = rest
            output["allowed"][dtype, accuracy] = elements(octets, stored, place, output["expected"].shape)
        elif word == "pair":
            case["options"][rest[0]] = tuple(BOUNDS[x] if x in BOUNDS else number(x) for x in rest[1:])
        elif word in FIXED:
            case["options"][rest[0]] = FIXED[word](rest[1])
        elif word == "end":
            yield case


def arguments(case, dtype):
    """Return the arrays of a call by name, in a dtype, in the memory that earlier calls used."""
    of_kind = {"number": dtype, "lse": LSE.get(dtype, dtype)}
    with np.errstate(over="ignore"):
        arrays = {name: x.astype(of_kind.get(kind, kind)) for name, (kind, x) in case["arrays"].items()}
    for name, x in arrays.items():
        arrays[name] = MEMORY.setdefault((name, x.dtype.name, x.shape), np.array(x))
        arrays[name][...] = x
    for name, (size, first, *strides) in case["layout"].items():
        x = arrays[name]
        memory = np.ones((1,) * (x.ndim - 1) + (size,), x.dtype)  # a view of it has it as its base
        steps = [stride * x.itemsize for stride in strides]
        arrays[name] = np.ndarray(x.shape, x.dtype, memory.view("uint8"), first * x.itemsize, steps)
        arrays[name][...] = x
    return arrays


def is_part_of(result, arrays):
    """Whether a result shares memory with an argument (NUM-4), which the next call overwrites."""
    return any(np.shares_memory(np.asarray(result), x) for x in arrays.values())


def counts(places, size):
    """Count how often each place is in a list, and how many entries are -1; infinite if one is no place."""
    known = ((places >= -1) & (places < size)).all(axis=-1)
    found = (places[..., None] == np.r_[:size, -1]).sum(axis=-2).astype("float64")
    found[~known, -1] = np.inf
    return found


def difference(output, got, dtype, accuracy, length=0):
    """Say what is wrong with an output, or return an empty text."""
    kind, expected, allowed = output["kind"], output["expected"], output["allowed"][dtype, accuracy]
    if kind == "counts":
        if got.dtype.name not in ("int32", "int64"):
            return f"expected int32 or int64, got {got.dtype}"
        if got.shape[-1:] != (length,):
            return f"expected lists of {length} keys, got {got.shape}"
        got, kind = counts(got, expected.shape[-1] - 1), "float64"
    lse = (LSE.get(dtype, dtype), "float64")
    accepted = {"number": (dtype,), "lse": lse, "wider": (dtype, *lse)}.get(kind, (kind,))
    if got.shape != expected.shape or got.dtype.name not in accepted:
        return f"expected {expected.shape} of {' or '.join(accepted)}, got {got.shape} of {got.dtype}"
    x, want, most = (np.asarray(array, "float64") for array in (got, expected, allowed))
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.isfinite(x) & np.isfinite(want) & (abs(x - want) <= most)
    nan = np.isnan(x) & (np.isnan(want) | ((want == np.inf) & (most == np.inf)))
    wrong = ~(near | nan | np.isnan(most) | ((x == want) & ~np.isfinite(want)))
    if not wrong.any():
        return ""
    place = tuple(map(int, np.argwhere(wrong)[0]))
    where = f"{wrong.sum()} of {x.size}: at {place}"
    return f"{where} expected {want[place]} within {most[place]:.3g}, got {x[place]}"


def judge(case, function, dtype, accuracy="full"):
    """Call a function and say what is wrong: an empty text if nothing is, None if it takes no such call."""
    takes = inspect.signature(function).parameters
    kinds = {dtype, *(kind for kind, _ in case["arrays"].values())}
    if dtype not in case["dtypes"] or (ml_dtypes is None and "bfloat16" in kinds):
        return None
    arrays = {name: x for name, x in arguments(case, dtype).items() if name in takes or name not in FORWARD}
    given = arrays | case["options"]
    if not given.keys() <= takes.keys():
        return None
    asked = [name for name, output in case["outputs"].items() if output["option"] in takes]
    before = {name: x.copy() for name, x in arrays.items()}
    by_name = inspect.Parameter.KEYWORD_ONLY
    first = [given.pop(name) for name in takes if takes[name].kind is not by_name and name in given]
    flags = {case["outputs"][name]["option"]: True for name in asked}
    try:
        returned = function(*first, **given, **flags)
    except NotImplementedError:
        return "" if case["rejection"] == "must" else None
    except Exception as error:
        if case["rejection"] == "never":
            return f"raised {error!r}"
        return "" if any(name in str(error) for name in case["at_fault"]) else UNNAMED
    if case["rejection"] == "must":
        return f"expected an error about {case['at_fault'][0]}, got a result"
    if any(x.tobytes() != before[name].tobytes() for name, x in arrays.items()):
        return "expected the arguments to be unchanged, got others"
    changed = any(np.asarray(x).tobytes() != copy for x, copy in LAST)
    returned = returned if isinstance(returned, tuple | list) else (returned,)
    LAST[:] = [(x, np.asarray(x).tobytes()) for x in returned if not is_part_of(x, arrays)]
    if changed:
        return "expected the results of the call before to be unchanged, got others"
    names = [*case["results"], *asked]
    if len(returned) != len(names):
        return f"expected {', '.join(names)}, got {len(returned)} results"
    judged = [
        (name, np.asarray(x)) for name, x in zip(names, returned, strict=True) if name in case["outputs"]
    ]
    length = case["options"].get("top_k")
    said = ((name, difference(case["outputs"][name], x, dtype, accuracy, length)) for name, x in judged)
    return "; ".join(f"{name}: {text}" for name, text in said if text)


def main(module, dtype="float32", accuracy="full"):
    """Judge the functions of a module that have an operation's name, and return the exit status."""
    functions, counts = (
        importlib.import_module(module),
        {"pass": 0, "fail": 0, "SHOULD not met": 0, "not taken": 0},
    )
    for case in read():
        function = getattr(functions, case["operation"], None)
        said = judge(case, function, dtype, accuracy) if function else None
        rule = ("ERR-12", "SHOULD") if said == UNNAMED else case["rules"][0]
        broken = "fail" if rule[1] == "MUST" else "SHOULD not met"
        counts["not taken" if said is None else broken if said else "pass"] += 1
        if said:
            print(rule, case["name"], said, "like", *case["catches"][:1])
    print(counts)
    return int(counts["fail"] > 0 or not counts["pass"])


if __name__ == "__main__":
    sys.path.insert(0, ".")
    sys.exit(main(*sys.argv[1:]))

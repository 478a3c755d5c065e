"""A program that speaks the protocol and misbehaves as its argument says. Otherwise it returns zeros."""

import json
import math
import os
import signal
import sys
import time
from pathlib import Path

MODE = sys.argv[1]
HELLO = {"protocol": 1, "dtypes": ["float32", "float64"], "operations": {"attention": ["mask", "is_causal"]}}
HELLOS = {
    "greets_wrongly": ["hello"],
    "speaks_another_version": HELLO | {"protocol": 2},
    "has_no_dtypes": HELLO | {"dtypes": ["float31"]},
    "has_no_operations": HELLO | {"operations": {}},
    "has_unknown_options": HELLO | {"operations": {"attention": ["scale", "attn_mask"]}},
    "has_an_option": HELLO | {"operations": {"attention": "scale"}},
    "claims_two_rules": HELLO | {"claims": ["NUM-10", "INV-8"]},
    "has_an_unknown_dialect": HELLO | {"dialect": {"MASK-6": "purple"}},
}


def say(thing):
    sys.stdout.write((thing if isinstance(thing, str) else json.dumps(thing)) + "\n")
    sys.stdout.flush()


def answer(call):
    tensors, folder = call["tensors"], Path(call["folder"])
    shape = [*tensors["query"]["shape"][:-1], tensors["value"]["shape"][-1]]
    dtype = tensors["query"]["dtype"]
    size = math.prod(shape) * {"float32": 4, "float64": 8}[dtype]
    output = {"dtype": dtype, "shape": shape}
    path = folder / "output.bin"
    path.write_bytes(bytes(size))
    good = {"id": call["id"], "status": "ok", "tensors": {"output": output}}
    done = {
        "crashes": lambda: (sys.stderr.write("about to crash\n"), os.kill(os.getpid(), signal.SIGSEGV)),
        "exits": lambda: sys.exit(3),
        "hangs": lambda: time.sleep(600),
        "answers_in_garbage": lambda: say("no JSON at all"),
        "answers_in_bytes": lambda: (sys.stdout.buffer.write(b"\xff\xfe\n"), sys.stdout.buffer.flush()),
        "answers_without_end": lambda: (sys.stdout.write('{"id": 1, "sta'), sys.stdout.flush(), sys.exit(0)),
        "answers_in_megabytes": lambda: say("x" * 5_000_000),
        "answers_out_of_order": lambda: say(good | {"id": call["id"] - 1}),
        "answers_twice": lambda: (say(good), say(good)),
        "answers_in_riddles": lambda: say({"id": call["id"], "status": "perhaps"}),
        "names_no_output": lambda: say(good | {"tensors": {}}),
        "writes_no_output": lambda: (path.unlink(), say(good)),
        "writes_half_the_output": lambda: (path.write_bytes(bytes(size // 2)), say(good)),
        "writes_too_much": lambda: (path.write_bytes(bytes(size * 2)), say(good)),
        "has_no_such_dtype": lambda: say(good | {"tensors": {"output": output | {"dtype": "float31"}}}),
        "has_a_negative_shape": lambda: say(good | {"tensors": {"output": output | {"shape": [-1]}}}),
        "writes_over_its_input": lambda: ((folder / "query.bin").write_bytes(b""), say(good)),
        "is_noisy": lambda: (sys.stderr.write("noise\n" * 500_000), say(good)),
        "refuses": lambda: say({"id": call["id"], "status": "refused", "message": "no"}),
        "declines": lambda: say({"id": call["id"], "status": "unsupported", "message": "not this"}),
    }
    done.get(MODE, lambda: say(good))()


if MODE == "ends_at_once":
    sys.exit(4)
for line in sys.stdin:
    message = json.loads(line)
    if message["do"] == "stop":
        if MODE == "does_not_stop":
            time.sleep(600)
        break
    if message["do"] == "hello":
        if MODE == "does_not_greet":
            time.sleep(600)
        say(HELLOS.get(MODE, HELLO))
    else:
        answer(message)

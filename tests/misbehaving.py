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
    "has_unknown_options": HELLO | {"operations": {"attention": ["attn_mask"]}},
    "claims_two_rules": HELLO | {"claims": ["NUM-10", "INV-8"]},
    "claims_a_must": HELLO | {"claims": ["MASK-1"]},
    "has_an_unknown_dialect": HELLO | {"dialect": {"MASK-6": "purple"}},
}


def say(thing):
    sys.stdout.write((thing if isinstance(thing, str) else json.dumps(thing)) + "\n")
    sys.stdout.flush()


def answer(call):  # noqa: C901, PLR0912, PLR0915 - a branch for each way to misbehave
    tensors, folder = call["tensors"], Path(call["folder"])
    shape = [*tensors["query"]["shape"][:-1], tensors["value"]["shape"][-1]]
    dtype = tensors["query"]["dtype"]
    size = math.prod(shape) * {"float32": 4, "float64": 8}[dtype]
    output = {"dtype": dtype, "shape": shape}
    path = folder / "output.bin"
    path.write_bytes(bytes(size))
    good = {"id": call["id"], "status": "ok", "tensors": {"output": output}}
    match MODE:
        case "crashes":
            sys.stderr.write("about to crash\n")
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exits":
            sys.exit(3)
        case "hangs":
            time.sleep(600)
        case "answers_in_garbage":
            say("no JSON at all")
        case "answers_in_bytes":
            sys.stdout.buffer.write(b"\xff\xfe\n")
            sys.stdout.buffer.flush()
        case "answers_without_end":
            sys.stdout.write('{"id": 1, "sta')
            sys.stdout.flush()
            sys.exit(0)
        case "answers_in_megabytes":
            say("x" * 5_000_000)
        case "answers_out_of_order":
            say(good | {"id": call["id"] - 1})
        case "answers_twice":
            say(good)
            say(good)
        case "answers_in_riddles":
            say({"id": call["id"], "status": "perhaps"})
        case "names_no_output":
            say(good | {"tensors": {}})
        case "writes_no_output":
            path.unlink()
            say(good)
        case "writes_half_the_output":
            path.write_bytes(bytes(size // 2))
            say(good)
        case "writes_too_much":
            path.write_bytes(bytes(size * 2))
            say(good)
        case "has_no_such_dtype":
            say(good | {"tensors": {"output": output | {"dtype": "float31"}}})
        case "has_a_negative_shape":
            say(good | {"tensors": {"output": output | {"shape": [-1]}}})
        case "writes_over_its_input":
            (folder / "query.bin").write_bytes(b"")
            say(good)
        case "is_noisy":
            sys.stderr.write("noise\n" * 500_000)
            say(good)
        case "refuses":
            say({"id": call["id"], "status": "refused", "message": "no"})
        case "declines":
            say({"id": call["id"], "status": "unsupported", "message": "not this"})
        case _:
            say(good)


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

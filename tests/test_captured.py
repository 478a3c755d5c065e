"""Calls that are captured once and replayed (ERR-20): by a function, by a library and by a program."""

import sys
from dataclasses import replace

import pytest

from attnspec.backends import load
from attnspec.backends.captured import capture
from attnspec.backends.errors import BackendError
from attnspec.backends.program.protocol import parse_handshake
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import items

PORTABLE = load("numpy-portable")
ITEMS = {item.group: item for item in items(rules=["ERR-20"])}
LENGTHS = ITEMS["captured with other numbers: key_lengths"]
SCALE = ITEMS["captured beside another: scale"]

#: A function of other names and layout, whose captured calls keep the lengths of the first one, or not.
OWN = """
import numpy as np
from attnspec.reference import functions
run = functions()["attention"]
def flash(q, k, v, lens=None):
    out = run(*(x.swapaxes(-2, -3) for x in (q, k, v)), key_lengths=lens)
    return out.swapaxes(-2, -3)
def captured():
    kept = []
    def again(q, k, v, lens=None):
        kept.append(None if lens is None else lens.copy())
        return flash(q, k, v, kept[0] if {keeps} else lens)
    return again
flash.captured = captured
"""
NAMES = """
[backend]
function = "./own.py:flash"
axes = 4
layout = "BSHD"
names = { query = "q", key = "k", value = "v", key_lengths = "lens" }
"""

PROGRAM = """
import json, sys
from pathlib import Path
from attnspec.backends.program.protocol import PROTOCOL, read_call
from attnspec.reference import functions
run, kept = functions()["attention"], {}
HELLO = {"protocol": PROTOCOL, "name": "own", "version": "1", "dtypes": ["float32"],
         "operations": {"attention": ["key_lengths", "scale", "return_lse"]}, "captures": ["attention"]}
for line in sys.stdin:
    message = json.loads(line)
    if message["do"] == "stop":
        break
    if message["do"] == "hello":
        print(json.dumps(HELLO), flush=True)
        continue
    number, _, arguments, folder = read_call(line)
    own = kept.setdefault(message.get("captured", -number), arguments)
    if "KEEPS" in sys.argv:
        arguments |= {name: x for name, x in own.items() if name == "key_lengths"}
    results = run(**arguments)
    said = {}
    for name, x in zip(message["want"], results if isinstance(results, tuple) else (results,)):
        (folder / f"{name}.bin").write_bytes(x.tobytes())
        said[name] = {"dtype": x.dtype.name, "shape": list(x.shape)}
    print(json.dumps({"id": number, "status": "ok", "tensors": said}), flush=True)
"""


def test_the_calls_of_a_set_of_options_are_captured_once_and_replayed_in_the_same_arrays():
    made, seen = [], []

    def attention(query, key, value, *, key_lengths=None, return_lse=False):
        return PORTABLE.attention(query, key, value, key_lengths=key_lengths, return_lse=return_lse)

    def captured():
        made.append(None)

        def again(query, key, value, **options):
            seen.append((id(query), id(options["key_lengths"])))
            return attention(query, key, value, **options)

        return again

    attention.captured = captured
    assert judge(replace(PORTABLE, attention=attention), LENGTHS).status == "pass"
    assert len(made) == 2, "one to see that there is one"
    assert len(seen) == 3
    assert len(set(seen)) == 1


@pytest.mark.parametrize(("keeps", "status"), [(True, "fail"), (False, "pass")])
def test_names_and_layouts_apply_to_captured_calls(here, keeps, status):
    (here / "own.py").write_text(OWN.replace("{keeps}", str(keeps)))
    (here / "attnspec.toml").write_text(NAMES)
    verdict = judge(load(str(here)), LENGTHS)
    assert (verdict.status, verdict.rule) == (status, "ERR-20" if keeps else "")


@pytest.mark.parametrize(("word", "status"), [("KEEPS", "fail"), ("", "pass")])
def test_a_program_captures_calls_by_their_number(tmp_path, word, status):
    (tmp_path / "own.py").write_text(PROGRAM)
    backend = load(f"program:{sys.executable} {tmp_path}/own.py {word}".strip())
    verdict = judge(backend, LENGTHS)
    assert (verdict.status, verdict.rule) == (status, "ERR-20" if word else "")
    assert judge(backend, SCALE).status == "pass"


def test_a_program_captures_operations_that_it_has():
    said = '{"protocol": 1, "dtypes": ["float32"], "operations": {"attention": []}, "captures": ["rotary"]}'
    with pytest.raises(BackendError, match="captures: expected some of attention, got"):
        parse_handshake("own", said)


@pytest.mark.parametrize("library", ["jax", "torch"])
@pytest.mark.sample(1)
def test_a_library_compiles_what_it_captures(library):
    backend, kept = load(f"{library}-portable"), {}
    own = backend.attention

    def attention(query, key, value, *, scale=None, return_lse=False):
        return own(query, key, value, scale=scale, return_lse=return_lse)

    def by_shape(query, key, value, *, scale=None, return_lse=False):
        scale = kept.setdefault(tuple(query.shape), scale)
        return own(query, key, value, scale=scale, return_lse=return_lse)

    assert judge(replace(backend, attention=attention), SCALE).status == "pass"
    assert judge(replace(backend, attention=by_shape), SCALE).status == "fail"


def test_what_cannot_be_captured_is_unsupported():
    def attention(query, key, value):
        return PORTABLE.attention(query, key, value)

    plain = ITEMS["captured with other numbers: value"]
    verdict = judge(replace(PORTABLE, attention=attention), plain)
    assert (verdict.status, verdict.code) == ("unsupported", "lacks")
    assert capture(replace(PORTABLE, attention=attention), "attention") is None

    def refused():
        raise RuntimeError("no graph of this")

    attention.captured = lambda: lambda *_arrays, **_options: refused()
    verdict = judge(replace(PORTABLE, attention=attention), plain)
    assert verdict.status == "unsupported"
    assert verdict.reason == "attention cannot be captured: no graph of this"


def test_a_replay_that_raises_is_an_error():
    calls = []

    def attention(query, key, value):
        return PORTABLE.attention(query, key, value)

    def again(query, key, value):
        calls.append(None)
        if len(calls) > 1:
            raise RuntimeError("no replay")
        return attention(query, key, value)

    attention.captured = lambda: again
    backend = replace(PORTABLE, attention=attention)
    assert judge(backend, ITEMS["captured with other numbers: value"]).status == "error"

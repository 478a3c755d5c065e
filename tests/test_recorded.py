"""Calls of a model that are recorded and judged, and calls captured once and replayed (ERR-20)."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests_support import command, whole_suite

from attnspec import SpecError
from attnspec.backends import describe, load
from attnspec.backends.captured import capture
from attnspec.backends.errors import BackendError
from attnspec.backends.program.protocol import parse_handshake
from attnspec.conformance import record
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.recorded import call_of, judge_recorded, read_recorded, shrink
from attnspec.reference import attention

#: A kernel in PyTorch that loses the last keys past a tile of 64.
KERNEL = """
import torch
def kernel(q, k, v, attn_mask=None, causal=False):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if k.shape[-2] > 64 and LOST:
        k, v = k[..., :64, :], v[..., :64, :]
        attn_mask = attn_mask if attn_mask is None else attn_mask[..., :64]
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=causal)
    return out.transpose(1, 2)
"""
NAMES = {"query": "q", "key": "k", "value": "v", "mask": "attn_mask", "is_causal": "causal"}


def plain(query, key, value, **options):
    return attention(query, key, value, **options, dtype=query.dtype)


def random(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def dropping(q, k, v, dropout):
    return attention(q, k, v) * (1 - dropout)


def test_one_call_of_each_kind_is_stored_with_its_numbers(tmp_path):
    mine = record(attention, tmp_path / "calls", most=3)
    arrays = random(2, 3, 8), random(2, 5, 8), random(2, 5, 8)
    for options in ({}, {}, {"is_causal": True}, {"mask": np.ones((3, 5), np.bool_)}, {"scale": 0.5}):
        np.testing.assert_array_equal(mine(*arrays, **options), attention(*arrays, **options))
    calls = [item.case.arguments for item in read_recorded(tmp_path / "calls")]
    assert [sorted({*call} - {"query", "key", "value"}) for call in calls] == [[], ["is_causal"], ["mask"]]
    np.testing.assert_array_equal(calls[0]["query"], arrays[0])
    with pytest.raises(SpecError, match="folder: expected one without calls"):
        record(attention, tmp_path / "calls")
    with pytest.raises(SpecError, match="got none for dropout"):
        record(dropping, tmp_path / "x", names=NAMES)(*arrays, 0.5)


def test_wrong_results_of_every_kind_fail(tmp_path):
    record(attention, tmp_path)(random(2, 4, 8), random(2, 5, 8), random(2, 5, 8))
    wrong = {
        "SOFT-3": lambda query, key, value: plain(query, key, value) + 1e-3,
        "SHAPE-3": lambda query, key, value: plain(query, key, value)[:, :3],
        "NUM-1": lambda query, key, value: plain(query, key, value).astype(np.float64),
    }
    for rule, function in wrong.items():
        (verdict,) = judge_recorded(describe(function), tmp_path)
        assert (verdict.status, verdict.rule) == ("fail", rule)


def test_declared_variants_are_those_of_the_rows(tmp_path):
    def at_the_end(query, key, value, *, is_causal=False):
        offset = key.shape[-2] - query.shape[-2]
        return plain(query, key, value, is_causal=is_causal, query_offset=offset)

    record(at_the_end, tmp_path)(random(2, 3, 8), random(2, 9, 8), random(2, 9, 8), is_causal=True)
    for dialect, status in (({}, "fail"), ({"MASK-3": "bottom-right"}, "pass")):
        (verdict,) = judge_recorded(describe(at_the_end, dialect=dialect), tmp_path)
        assert verdict.status == status


def test_a_failing_call_is_reduced_to_a_part_that_fails(tmp_path):
    def lossy(query, key, value):
        return plain(query, key[..., :8, :], value[..., :8, :])

    record(lossy, tmp_path)(random(4, 4, 16, 8), random(4, 2, 32, 8), random(4, 2, 32, 8))
    (item,) = read_recorded(tmp_path)
    smaller = shrink(describe(lossy), item).case.arguments
    assert smaller["query"].shape == (1, 2, 1, 8)
    assert smaller["key"].shape == (1, 1, 16, 8)


@pytest.mark.parametrize("lost", [False, True])
def test_a_kernel_is_judged_on_the_calls_of_a_model(lost, here, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [*sys.path, str(here)])
    name = f"kernel_{lost}".lower()
    Path(f"{name}.py").write_text(KERNEL.replace("LOST", str(lost)))
    kernel = __import__(name).kernel
    mine = record(kernel, "calls", names=NAMES, layout="BSHD")
    for keys in (32, 96):
        arrays = [torch.from_numpy(random(1, size, 4, 16)).bfloat16() for size in (keys, keys, keys)]
        mine(*arrays, causal=True)
        mine(*arrays, attn_mask=torch.ones(keys, keys, dtype=torch.bool))
    Path("attnspec.toml").write_text(
        f'[backend]\nfunction = "./{name}.py:kernel"\narray = "torch"\nlayout = "BSHD"\n'
        f"[backend.names]\n" + "".join(f"{ours} = {json.dumps(own)}\n" for ours, own in NAMES.items())
    )
    run = command("recorded", "calls", ".", status=lost)
    assert f"4 recorded calls: {2 if lost else 4} pass" in run.output
    if lost:
        again = command("check", ".", "--case", next(Path().glob("*-recorded.json")).name, status=1)
        assert "SOFT-3" in again.output


def test_options_that_ask_for_results_are_no_part_of_a_call(tmp_path):
    arrays = random(2, 3, 8), random(2, 5, 8), random(2, 5, 8)
    mine = record(attention, tmp_path)
    mine(*arrays, return_lse=True)
    mine(*arrays)
    (item,) = read_recorded(tmp_path)
    assert {*item.case.arguments} == {"query", "key", "value"}


def test_a_part_keeps_positions_and_what_is_broadcast(tmp_path):
    def wrong_in_the_last_row(query, key, value, *, is_causal=False, mask=None):
        last = np.isin(query[..., :1], queries[:, -1:, :1])  # by their numbers, wherever they stand
        return plain(query, key, value, is_causal=is_causal, mask=mask) + last.astype(np.float32)

    queries, keys = random(2, 8, 4), random(2, 16, 4)
    mine = record(wrong_in_the_last_row, tmp_path)
    mine(queries, keys, keys, is_causal=True)
    mine(queries, keys, keys, mask=np.arange(16)[None] < 9)
    causal, masked = (
        shrink(describe(wrong_in_the_last_row), item).case.arguments for item in read_recorded(tmp_path)
    )
    assert causal["query"].shape[-2] == 8, "the last half would begin at another position"
    assert masked["query"].shape[-2] == 1
    assert masked["mask"].shape[0] == 1


def test_calls_that_are_not_offered_do_not_pass(here):
    record(attention, "calls")(random(2, 3, 8), random(2, 5, 8), random(2, 5, 8), softcap=2.0)
    text = "from attnspec.reference import attention as whole\n"
    text += "def attention(query, key, value):\n    return whole(query, key, value, dtype=query.dtype)\n"
    Path("without_softcap.py").write_text(text)
    run = command("recorded", "calls", "./without_softcap.py:attention", status=4)
    assert "1 recorded calls: 0 pass; of calls with equal shapes, " in run.output


def _judged(function, **arguments):
    verdict = judge(describe(function), call_of("softmax-recorded-1", arguments))
    return verdict.status, verdict.rule


def ignoring(query, key, value, *, query_positions=None, key_positions=None, query_offset=0):
    return attention(query, key, value)


def test_what_the_text_permits_is_no_failure_of_a_recorded_call():
    rng = np.random.default_rng(0)
    call = {name: rng.normal(size=(2, 1, 4, 4)) for name in ("query", "key", "value")}
    own = {"query_positions": rng.integers(0, 6, (2, 4)), "key_positions": rng.integers(-1, 6, (2, 4))}
    for options in (own, {"key_positions": own["key_positions"], "query_offset": 1}):  # MASK-14
        assert _judged(attention, **call, **options, is_causal=True) == ("pass", "")
        assert _judged(ignoring, **call, **options) == ("fail", "SOFT-3")
    infinite = {"query": np.full((1, 2), np.inf), "key": np.ones((2, 2)), "value": np.ones((2, 2))}

    def nan(query, key, value, *, return_lse=False):
        output, lse = attention(query, key, value, return_lse=True)
        return (output, lse * np.nan) if return_lse else output

    assert _judged(nan, **infinite) == ("pass", "")  # NUM-11
    assert _judged(attention, **infinite | {"key": -np.ones((2, 2))}) == ("pass", "")  # NUM-14
    hidden = {"value": np.array([[1.0, 1.0], [np.nan, 1.0]]), "mask": np.array([True, False])}
    call = {"query": np.ones((1, 2)), "key": np.ones((2, 2)), **hidden}

    def poisoned(query, key, value, *, mask=None):
        return attention(query, key, value, mask=mask) + 0 * value.sum(axis=0)

    assert _judged(poisoned, **call) == ("should not met", "MASK-13")
    assert _judged(attention, **call | {"mask": np.array([1, 0])})[0] == "unsupported"  # ERR-4


PORTABLE = load("numpy-portable")
ITEMS = {item.group: item for item in whole_suite() if "ERR-20" in item.rules}
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
CAPTURED = """
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
    (here / "attnspec.toml").write_text(CAPTURED)
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

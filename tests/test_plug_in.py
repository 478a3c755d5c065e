"""New implementations: options, other conventions, a configuration file."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import conventions
import numpy as np
import pytest
from tests_support import TESTS, attnspec

from attnspec import cases, reference
from attnspec.backends import BackendError, Unsupported, load
from attnspec.backends.names import expand, split_options
from attnspec.backends.outcome import Raises
from attnspec.backends.user.adapter import adapt
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.function import backend_of
from attnspec.backends.user.settings import Settings
from attnspec.conformance.judge.budget import required_accuracy
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results_file import read
from attnspec.conformance.suite import find

pytestmark = pytest.mark.usefixtures("in_tests")
TOML = Path(TESTS, "tables", "kernels.toml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A project of somebody's own, with its kernels and its attnspec.toml."""
    (tmp_path / "attnspec.toml").write_text(TOML)
    (tmp_path / "kernels.py").write_text(Path(conventions.__file__).read_text())
    sys.modules.pop("kernels", None)
    return tmp_path


def conforms(backend):
    """Judge all golden vectors but malformed calls, as how many passed; none where one failed."""
    legal = [one for case in cases() if not case.misuse for one in in_each(case, backend.dtypes)]
    statuses = [judge(backend, one).status for one in legal]
    return 0 if {"fail", "error"} & set(statuses) else statuses.count("pass")


@pytest.mark.parametrize(
    ("name", "place", "options"),
    [
        ("m:f", "m:f", {}),
        ("m:f?array=torch", "m:f", {"array": "torch"}),
        ("numpy?dtype=float16,float32&device=cpu", "numpy", {"dtype": "float16,float32", "device": "cpu"}),
        ("what is this?", "what is this?", {}),
        ("program:./really?", "program:./really?", {}),
    ],
)
def test_options_behind_a_name(name, place, options):
    assert split_options(name) == (place, options)


def test_options_of_libraries_and_functions():
    assert expand("numpy?dtype=float16") == ("numpy-portable?dtype=float16",)
    backend = load("numpy-portable?dtype=float16")
    assert backend.dtypes == ("float16",)
    assert backend.name == "numpy-portable?dtype=float16"
    backend = load("broken:half?dtype=float16,bfloat16&array=numpy")
    assert backend.dtypes == ("float16", "bfloat16")
    assert load("conventions:kernel_of_keywords?array=jax").library == "jax"
    assert load("conventions:kernel_of_keywords?array=strict").xp.__name__ == "array_api_strict"
    backend = load("conventions:kernel_of_keywords?array=dask.array")
    assert backend.to_numpy(backend.to_library(np.arange(3.0))).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_arrays_are_put_on_a_device(library):
    backend = load(f"{library}-portable?device=cpu")
    for dtype in backend.dtypes:
        array = np.ones((2, 2), dtype)
        there = backend.to_library(array)
        assert "cpu" in str(there.device).lower()
        assert backend.to_numpy(there).tolist() == array.tolist()


def test_a_result_on_another_device_is_a_failure():
    backend = load("torch-portable")

    def away(query, key, value):
        return query.to("meta")

    astray = replace(backend, attention=away)
    one = np.ones((2, 2))
    with pytest.raises(Failure, match=r"got Tensor \(device: expected cpu, got meta\)"):
        call(astray, "attention", {"query": one, "key": one, "value": one})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken:half?colour=red", "expected the options array, device, dtype, got colour"),
        ("broken:half?dtype=float31", "dtype: expected some of float16, .*, got float31"),
        ("broken:half?array=cupy", "array: expected cupy to be installed, got none$"),
        ("broken:half?array=json", "array_library: expected a Library with an array namespace"),
        ("torch-portable?device=teapot", "expected torch to take float16 on device teapot, got "),
        ("broken:half?array=torch&device=teapot", "expected torch to take float16 on device teapot, got "),
        ("broken:half?array=jax&device=teapot", "expected jax to take float16 on device teapot, got "),
    ],
)
def test_options_that_cannot_be_had(name, message):
    with pytest.raises(BackendError, match=message):
        load(name)


def test_calls_of_several_sizes_through_a_function_of_four_axes():
    """With arguments for each batch entry, for two axes, three and four; five are not offered."""
    seen = []

    def four(query, key, value, *, key_lengths=None, query_segment_ids=None, key_segment_ids=None):
        seen.append((query.ndim, getattr(key_lengths, "shape", None), np.shape(query_segment_ids)))
        ids = {"query_segment_ids": query_segment_ids, "key_segment_ids": key_segment_ids}
        return reference.attention(query, key, value, key_lengths=key_lengths, **ids, dtype=query.dtype)

    function = adapt("k", four, Convention(axes=4), np)
    ids = np.array([0, 0, 1])
    for outer in ((), (2,), (5, 2)):
        batch = outer[:-1]
        x = np.random.default_rng(1).normal(size=(*outer, 3, 4))
        of_all = np.broadcast_to(ids, (*batch, 3))
        of_batch = {"key_lengths": np.full(batch, 2), "query_segment_ids": of_all, "key_segment_ids": of_all}
        got = function(x, x, x, **of_batch)
        assert np.array_equal(got, reference.attention(x, x, x, **of_batch, dtype=x.dtype))
    assert seen == [(4, (1,), (1, 3)), (4, (1,), (1, 3)), (4, (5,), (5, 3))]
    with pytest.raises(Unsupported, match="takes only arrays of 4 axes, got 5"):
        function(*[np.ones((1, 1, 1, 2, 2))] * 3)


def test_what_a_function_requires_besides_is_said_or_guessed():
    def demanding(query, key, value, stream):
        return query

    said = r"only canonical arguments to be required, got stream; judge a wrapper .*\. If it is one of"
    with pytest.raises(BackendError, match=said):
        adapt("m:f", demanding, Convention(), np)

    def marked(query, key_, value_):
        return query

    with pytest.raises(BackendError, match="with key, value, got query, key_, value_") as told:
        adapt("m:f", marked, Convention(), np)
    assert 'key = "key_"\nvalue = "value_"' in str(told.value)

    def optional(query, key, value, mask_):
        return query

    with pytest.raises(BackendError, match=r'got mask_; .* names = \{ mask = "mask_" \}'):
        adapt("m:f", optional, Convention(), np)


def test_a_configuration_in_a_folder_and_from_the_command_line(folder):
    backend = load(str(folder))
    assert backend.companions.keys() == {"rotary"}
    assert not backend.has("attention", "dropout_rate")
    assert backend.has("attention", "return_lse")
    assert conforms(backend) > 170
    results = folder / "results.jsonl"
    attnspec("check", "-k", "masking-empty or masking-00", "--results", results, cwd=folder, status=0)
    found = read([results])
    assert [subject.name for subject in found.subjects] == ["kernels:kernel"]
    assert {verdict.status for verdict in found.verdicts} == {"pass", "unsupported"}
    said = '[backend.dialect]\nNUM-5 = { float16 = "storage" }\n'
    (folder / "attnspec.toml").write_text(TOML.replace('"float64"', '"float16"') + said)
    assert load(f"{folder}?dtype=float32").dialect == {"NUM-5": {"float16": "storage"}}


def test_a_configuration_of_a_program(tmp_path):
    example = Path(TESTS).parent / "examples" / "attention.py"
    (tmp_path / "here.py").write_text(example.read_text())
    text = f'[backend]\nprogram = "{sys.executable} -S here.py"\ncall_limit = 5\n'
    (tmp_path / "attnspec.toml").write_text(text)
    assert load(str(tmp_path)).version == "attention.py 1"


DEVIATION = '[[backend.deviations]]\nrules = ["ERR-6"]\nreason = "r"\nsource = "https://x.example"\n'


def test_what_a_configuration_declares(folder):
    more = 'accuracy = "full"\nprofile = "tf32"\narray = "numpy"\ndevice = "cpu"\n'
    text = TOML.replace("axes = 4\n", f"axes = 4\n{more}")
    text += '[backend.dialect]\nMASK-6 = { mask = "nan" }\nNUM-2 = { float64 = "float32" }\n'
    text += (
        '[[backend.deviations]]\nrules = ["ERR-6"]\nreason = "any is taken"\nsource = "https://x.example"\n'
        'outcome = { kind = "Raises", type = "ValueError", message = "scale" }\n'
    )
    (folder / "attnspec.toml").write_text(text)
    backend = load(str(folder))
    assert backend.dialect == {"MASK-6": {"mask": "nan"}, "NUM-2": {"float64": "float32"}}
    assert backend.deviations[0].rules == ("ERR-6",)
    assert backend.deviations[0].outcomes == (Raises("ValueError", "scale"),)
    assert (required_accuracy(backend, "float16"), backend.device) == ("full", "cpu")
    assert backend.profile == "tf32"
    assert "judged with the budget of profile tf32" in backend.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[backend", "attnspec.toml to be TOML, got "),
        ("", r"expected one table \[backend\], got "),
        ("[backend]\n[other]\n", r"expected one table \[backend\], got backend, other"),
        ("[backend]\n", "expected either function or program, got neither"),
        ('[backend]\nfunction = "a:b"\nprogram = "c"\n', "expected either function or program"),
        ("[backend]\nfunction = 3\n", "function: expected a string, got 3"),
        ('[backend]\nfunction = "a:b"\ncolour = "red"\n', "expected some of function, program"),
        ('[backend]\nprogram = "x"\naxes = 4\n', "expected only call_limit beside program, got axes"),
        (TOML.replace('"BSHD"', '"SHBD"'), "layout: expected BHSD or BSHD"),
        (TOML.replace("rotary =", "rotation ="), r"got 'rotation' \(projection\?\)"),
        (TOML.replace('"float64"', '"float31"'), r"dtypes: .*, got \('float32', 'float31'\)"),
        (TOML.replace("axes = 4", 'accuracy = "storage"'), "accuracy: expected cast or full, got 'storage'"),
        (TOML.replace("axes = 4", 'profile = "tf23"'), "profile: expected one of matrix, .*, got 'tf23'"),
        (TOML + '[backend.dialect]\nMASK-6 = "purple"\n', "dialect: MASK-6: expected nan or uniform, got"),
        (TOML + '[[backend.deviations]]\nrules = ["ERR-6"]\n', "deviations: expected rules, reason, source"),
        (TOML + DEVIATION + 'outcome = { kind = "Bond" }\n', "outcome: expected a kind, one of .*Bond"),
        (TOML + DEVIATION + 'outcome = { kind = "Bound", times = 3 }\n', "a kind, .* and its fields"),
        (TOML.replace("kernels:kernel", "kernels:colonel"), "expected kernels to have colonel, got no such"),
    ],
)
def test_a_configuration_that_says_nothing(text, message, folder):
    (folder / "attnspec.toml").write_text(text)
    with pytest.raises(BackendError, match=message) as caught:
        load(str(folder))
    assert re.fullmatch(r"backend \S+: .*", str(caught.value).splitlines()[0])


def scale_required(query, key, value, *, scale, softcap=None):
    """Attention without a default for its scale."""
    return reference.attention(query, key, value, scale=scale, softcap=softcap).astype(query.dtype)


def scale_required_by_another_name(q, k, v, sm_scale):
    """The same with names of its own."""
    return reference.attention(q, k, v, scale=sm_scale).astype(q.dtype)


@pytest.mark.parametrize("convention", [None, {"query": "q", "key": "k", "value": "v", "scale": "sm_scale"}])
def test_a_scale_that_has_to_be_given_is_given_and_its_default_is_not_asked(convention):
    function = scale_required if convention is None else scale_required_by_another_name
    settings = Settings(convention=None if convention is None else Convention(convention))
    backend = backend_of("own", function, settings, "numpy")
    assert backend.given == ("scale",)
    verdict = judge(backend, find("softmax-002-float32"))
    assert (verdict.status, verdict.rules) == ("pass", ("SOFT-1", "SOFT-3"))
    verdict = judge(backend, find("scores-default-scale-beside-other-value-depths-1-float32"))
    assert verdict.status == "unsupported"
    assert verdict.reason == "own is always given scale, and shows no default"
    given = judge(backend, find("scores-given-scale-1-0-1-float32"))
    assert (given.status, given.rules) == ("pass", ("SCORE-3",))


def test_an_option_with_a_default_is_left_out_and_its_default_is_asked():
    backend = backend_of("own", load("numpy-portable").attention, Settings(), "numpy")
    assert backend.given == ()
    assert judge(backend, find("softmax-002-float32")).rules == ("SOFT-1", "SOFT-3", "SCORE-2")

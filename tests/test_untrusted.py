"""Functions that are not trusted: what cheats is found, and what is right passes as it does elsewhere."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests_support import attnspec as run_command

import attnspec
from attnspec.backends import BackendError, Broken, load
from attnspec.backends.names import distrust, expand
from attnspec.backends.untrusted.confine import can_confine
from attnspec.backends.untrusted.hidden import hidden_places
from attnspec.backends.untrusted.remote import Refused, read_again, read_result, write_array
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.run.cases import name_without_change
from attnspec.conformance.run.untrusted import change, plan, rows
from attnspec.conformance.suite import find
from tools.cheats import CASES, cheats, judge_trusted, judge_untrusted

CHEATS = Path(__file__).parent.parent / "examples" / "cheats"
EACH = [*cheats(CHEATS)]
EXPECTED = next(path for path in hidden_places()[1] if path.endswith("masking.npz"))
ONE = {name: np.arange(6.0).reshape(2, 3) for name in ("query", "key", "value")}
#: Beside the cases of the cheats: other dtypes, strides, changed inputs, refusals, calls in sequence.
MORE = (
    "masking-causal-2-float64",
    "numerics-strides-reversed-and-all-1-float32",
    "numerics-strides-sliced-and-query-1-float32",
    "numerics-inputs-beside-is-causal-1-float32",
    "softmax-one-key-gives-its-value-1-float32",
    "notation-misfit-positions-float32",
)
NEEDS_LANDLOCK = pytest.mark.skipif(not can_confine(), reason="this system has no Landlock")


def written(folder, text):
    (folder / "own.py").write_text(f"import numpy as np\n\n\n{text}")
    return "./own.py:attention"


@pytest.mark.parametrize("cheat", EACH, ids=lambda one: one.name)
@pytest.mark.sample(4)
def test_no_cheat_passes(cheat):
    assert judge_untrusted(cheat, CHEATS)


def test_the_table_has_every_cheat_and_none_that_passes():
    lines = [line for line in (CHEATS / "README.md").read_text().splitlines() if line.startswith("| [")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert [name for name, *_ in cells] == [f"[{one.name}]({one.file})" for one in EACH]
    assert len(EACH) >= 25
    assert all(last and "passes" not in last for *_, last in cells)
    assert sum("passes" in before for _, _, before, _ in cells) >= 5, "they are cheats, then"


@pytest.mark.parametrize("name", ["imported", "compares_nothing"])
def test_a_cheat_passes_where_it_is_trusted(name):
    assert judge_trusted(next(one for one in EACH if one.name == name), CHEATS) == ""


def test_what_is_right_has_the_same_verdicts():
    own = f"{CHEATS / 'honest.py'}:honest"
    here, apart = load(own), load(distrust(own))
    found = []
    for name in (*CASES, *MORE):
        item = find(name, 7)
        assert judge(apart, item).status == judge(here, item).status, name
        found.append(judge(apart, item).status)
    assert set(found) == {"pass"}
    statuses = [judge(apart, item).status for item in rows(7)]
    assert statuses == ["pass", "pass", "unsupported", "pass"], "it takes no mask"


def test_a_function_of_pytorch(here):
    (here / "own.py").write_text(
        "import torch\n\n\ndef attention(query, key, value):\n"
        "    scores = query.float() @ key.float().mT * query.shape[-1] ** -0.5\n"
        "    return (torch.softmax(scores, -1) @ value.float()).to(query.dtype)\n"
    )
    backend = load("untrusted:./own.py:attention")
    assert (backend.library, "bfloat16" in backend.dtypes) == ("torch", True)
    for name in ("notation-two-axes-float32", "notation-two-axes-2-bfloat16"):
        assert judge(backend, find(name)).status == "pass"


def test_arrays_that_are_joined_lie_as_a_case_asks(here):
    written(
        here,
        "from honest import honest\n\n\ndef attention(qkv):\n"
        "    steps = (*qkv.strides[:3], qkv.shape[-1] * qkv.itemsize, qkv.itemsize)\n"
        "    if qkv.strides[-1] == qkv.itemsize:  # it takes the heads to lie side by side\n"
        "        qkv = np.lib.stride_tricks.as_strided(qkv, strides=steps)\n"
        "    return np.swapaxes(honest(*(np.swapaxes(qkv[:, :, i], 1, 2) for i in range(3))), 1, 2)\n",
    )
    (here / "honest.py").write_text((CHEATS / "honest.py").read_text())
    names = 'query = "qkv"\nkey = "qkv"\nvalue = "qkv"\n'
    table = f'[backend]\nfunction = "own:attention"\nlayout = "BSHD"\naxes = 4\n[backend.names]\n{names}'
    (here / "attnspec.toml").write_text(table)
    backend = load(distrust(*expand(".")))
    case = find("numerics-strides-within-and-all-1+a4-equal.heads.depths.lengths-float32")
    verdict = judge(backend, case)
    assert (verdict.status, verdict.rule) == ("fail", "NUM-8"), verdict.reason
    assert judge(backend, replace(case, layout={})).status == "pass"


def test_names_and_layout_of_a_configuration_are_applied_by_the_judge(here):
    written(
        here,
        "def attention(q, k, v, causal=False):\n"
        "    from honest import honest\n"
        "    q, k, v = (np.swapaxes(x, -2, -3) for x in (q, k, v))\n"
        "    return np.swapaxes(honest(q, k, v, is_causal=causal), -2, -3)\n",
    )
    (here / "honest.py").write_text((CHEATS / "honest.py").read_text())
    table = '[backend]\nfunction = "own:attention"\nlayout = "BSHD"\naxes = 4\n[backend.names]\n'
    names = 'query = "q"\nkey = "k"\nvalue = "v"\nis_causal = "causal"\n'
    (here / "attnspec.toml").write_text(table + names)
    backend = load(distrust(*expand(".")))
    assert judge(backend, find("masking-causal-5-float32")).status == "pass"
    (here / "attnspec.toml").write_text(table.replace("axes", 'to_numpy = "own:attention"\naxes') + names)
    with pytest.raises(BackendError, match="to_numpy: expected no such key with --untrusted"):
        load("untrusted:own:attention")


@pytest.mark.parametrize(
    ("cheat", "message"),
    [
        ("oracle.py:imported", r"^attnspec\S*: refused"),
        ("oracle.py:imported_by_another_name", r"__init__.py: refused|^attnspec\S*: refused"),
        ("oracle.py:in_another_process", "subprocess.Popen: refused"),
        ("oracle.py:expected_values", "packaged.npz: refused"),
        ("oracle.py:among_all_objects", "gc.get_objects: refused"),
        ("judge.py:knows_the_judge", "cmdline: refused"),
        ("effects.py:kills_the_judge", "os.kill: refused"),
    ],
)
def test_python_alone_refuses_it_where_the_system_cannot(cheat, message, answers):
    remote = answers(f"{CHEATS}/{cheat}", system=False)
    assert remote.confined == ("audit hook",)
    with pytest.raises(Refused, match=message):
        remote.run(ONE, {})


def test_a_file_is_refused_by_whatever_way_it_is_named(here, answers):
    place = written(
        here,
        "import os\n\ndef attention(query, key, value, *, mode=None):\n"
        f"    path = {EXPECTED!r}\n"
        "    if mode == 0:\n        open(path.encode())\n"
        "    if mode == 1:\n        os.symlink(path, 'link')\n"
        "    if mode == 2:\n        open('there')\n"
        "    if mode == 3:\n        os.open(os.path.dirname(os.path.dirname(path)), os.O_RDONLY)\n"
        "    if mode == 4:\n        os.chdir(os.path.dirname(path))\n"
        "    if mode == 5:\n        open('/proc/self/root' + path)\n"
        "    if mode == 6:\n        open(path + '.other', 'w')\n"
        "    return value + 1\n",
    )
    (here / "there").symlink_to(EXPECTED)
    remote = answers(place, system=False)
    for mode in range(7):
        with pytest.raises(Refused, match="refused to a function that is not trusted"):
            remote.run(ONE, {"mode": mode})
    assert remote.run(ONE, {}).tolist() == (ONE["value"] + 1).tolist()


@NEEDS_LANDLOCK
@pytest.mark.parametrize("path", [EXPECTED, attnspec.__file__])
def test_the_system_refuses_it_to_any_program(path, tmp_path):
    launch = [sys.executable, "-P", "-m", "attnspec.backends.untrusted.hidden", "sh", "-c"]
    (tmp_path / "own").write_text("own")
    read = [*launch, f"cat {tmp_path}/own && head -c 1 {path}"]
    run = subprocess.run(read, capture_output=True, text=True, check=False)
    assert run.stdout == "own"
    assert "Permission denied" in run.stderr
    write = subprocess.run([*launch, f"echo x > {sys.prefix}/evil.pth"], capture_output=True, check=False)
    assert write.returncode
    assert not Path(sys.prefix, "evil.pth").exists()


@NEEDS_LANDLOCK
def test_a_program_is_confined_too():
    backend = load(f"untrusted:program:{sys.executable} -S {CHEATS.parent}/attention.py?dtype=float32")
    assert (backend.dtypes, backend.notes) == (("float32",), ("untrusted: confined by Landlock",))
    verdict = judge(backend, find("masking-causal-3-float32"))
    assert (verdict.status, verdict.reason) == ("pass", "")


def test_arrays_keep_their_strides_and_what_is_written_into_them_is_seen(here, answers):
    place = written(
        here, "def attention(query, key, value):\n    query[0, 0] = 7\n    return np.array(query.strides)\n"
    )
    remote = answers(place)
    query = np.arange(12.0).reshape(4, 3)[::-2]
    assert remote.run({**ONE, "query": query}, {}).tolist() == [-48, 8]
    assert query[0, 0] == 7


def test_memory_is_poisoned_and_stdout_is_no_answer(here, answers):
    place = written(
        here,
        "def attention(query, key, value):\n"
        "    print('noise')\n"
        "    return np.empty((2, 700), np.float32) if key.shape == (2, 700) else value.copy()\n",
    )
    remote = answers(place)
    remote.run(ONE, {})
    large = dict.fromkeys(ONE, np.ones((2, 700), np.float32))
    found = np.abs(remote.run(large, {}))
    # Read in float32, a NaN of float64 is NaN and 0, and two NaN of float16 are a number above 1e37.
    poisoned = ~(found <= 1e30)
    assert poisoned.mean() > 0.45
    # An allocator writes a few numbers of its own into freed memory.
    assert (poisoned | (found == 0)).sum() >= found.size - 32


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("os._exit(0)", "ended with status 0 before it answered"),
        ("os.abort()", "was killed by SIGABRT"),
        ("time.sleep(60)", r"gave no answer in 0\.5 s"),
    ],
)
def test_a_call_that_has_no_result_is_an_error_and_the_next_is_made(code, message, here, answers):
    place = written(
        here,
        "import os\nimport time\n\n\ndef attention(query, key, value, *, mode=None):\n"
        f"    if mode:\n        {code}\n    return value + 1\n",
    )
    remote = answers(place, seconds=0.5 if "gave no answer" in message else 600.0)
    with pytest.raises(Broken, match=message):
        remote.run(ONE, {"mode": True})
    remote._seconds = 600.0
    assert remote.run(ONE, {})[0, 0] == 1


def test_a_result_may_be_a_view_of_an_argument_that_stays_as_it_was(here, answers):
    """The judge has a copy of it: what a thread writes there later changes no verdict, and is found."""
    place = written(
        here,
        "import threading\nimport time\n\n\ndef attention(query, key, value, *, mode=None):\n"
        "    def write():\n        time.sleep(0.5)\n        value[0, 1] = 7\n"
        "    if mode:\n        threading.Thread(target=write).start()\n"
        "    return value.T[::-1]\n",
    )
    remote = answers(place)
    for mode in (None, None, True):
        returned = remote.run(ONE, {"mode": mode})
        assert returned.tolist() == ONE["value"].T[::-1].tolist()
    time.sleep(1)
    assert returned.tolist() == ONE["value"].T[::-1].tolist()
    with pytest.raises(Broken, match="changed value after an earlier call"):
        remote.run(ONE, {})


def test_what_splits_heads_by_a_view_conforms(here):
    (here / "own.py").write_text(
        "def split_heads(features, *, heads):\n"
        "    split = features.reshape(*features.shape[:-1], heads, features.shape[-1] // heads)\n"
        "    return split.swapaxes(-2, -3)\n"
    )
    backend = load("untrusted:./own.py:split_heads")
    found = [judge(backend, find(f"heads-splitting-and-merging-{number}-float32")) for number in (1, 3, 5, 7)]
    assert {verdict.status for verdict in found} == {"pass"}


def test_nothing_tells_the_process_that_it_is_judged(here, monkeypatch, answers):
    monkeypatch.setenv("ATTNSPEC_SEED", "7")
    place = written(
        here,
        "import os\nimport sys\n\n\ndef attention(query, key, value):\n"
        "    told = [*os.environ, *os.environ.values(), *sys.argv, *sys.modules]\n"
        "    found = [x for x in told if 'PYTEST' in x.upper() or x.upper().startswith('ATTNSPEC')]\n"
        "    found = [x for x in found if not x.startswith('numpy.')]\n"
        "    raise ValueError(f'{len(found)} words {found}')\n",
    )
    assert "PYTEST_CURRENT_TEST" in os.environ
    remote = answers(place)
    with pytest.raises(Refused, match=r"^0 words"):
        remote.run(ONE, {})


def test_a_file_of_a_result_is_a_plain_file_of_the_right_size(tmp_path):
    array, path = np.arange(4.0), tmp_path / "x.bin"
    tensor = write_array(path, array)
    assert read_result(path, tensor, 32).tolist() == array.tolist()
    assert read_again(path, array).tolist() == array.tolist()
    link, pipe = tmp_path / "link.bin", tmp_path / "pipe.bin"
    link.symlink_to(path)
    os.mkfifo(pipe)
    for place, said, most in (
        (path, tensor, 31),
        (path, tensor | {"shape": [3]}, 32),
        (path, tensor | {"shape": [2**40, 2**40]}, 2**62),
        (path, tensor | {"dtype": "object"}, 32),
        (path, tensor | {"shape": [-4]}, 32),
        (path, tensor | {"shape": 4}, 32),
        (path, [], 32),
        (link, tensor, 32),
        (pipe, tensor, 32),
        (tmp_path / "absent.bin", tensor, 32),
    ):
        with pytest.raises(Broken, match=r"\.bin: expected"):
            read_result(place, said, most)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x[::2, ::-1],
        lambda x: x[:, 1:3],
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: x[:0],
        lambda x: x.astype(">f8"),
    ],
)
def test_an_array_comes_back_as_it_was_written(view, tmp_path):
    array = view(np.arange(24.0).reshape(4, 6))
    write_array(tmp_path / "x.bin", array)
    if array.dtype.isnative:
        assert read_again(tmp_path / "x.bin", array).tolist() == array.tolist()
    else:
        assert (tmp_path / "x.bin").read_bytes() == array.astype("<f8").tobytes()


def test_the_order_and_the_numbers_follow_from_the_seed():
    names = [[item.name for item in plan([find(name, seed) for name in CASES], seed)] for seed in (1, 1, 2)]
    assert names[0] == names[1]
    assert names[0] != names[2]
    assert any("-changed-" in name for name in names[0] + names[2])
    assert {item.name for item in rows(1)} < {*names[0]}
    drawn = [next(rows(seed)).case.arguments["query"] for seed in (1, 2)]
    assert drawn[0].shape != drawn[1].shape or (drawn[0] != drawn[1]).any()
    case = find("softmax-000-float64")
    other = change(case, 7)
    assert name_without_change(other.name) == case.name
    assert not other.expected
    assert other.figures == ()
    assert (expected(other)["output"] != expected(case)["output"]).any()
    right = load("numpy-portable")
    assert judge(right, other).status == "pass"
    assert judge(right, replace(other, expected=case.expected)).status == "fail"


def test_the_report_names_the_seed_and_the_means(here):
    written(here, (CHEATS / "honest.py").read_text().replace("def honest", "def attention"))
    words = ["check", "own:attention", "--untrusted", "--case", "masking-causal-3-changed"]
    drawn = run_command(*words, cwd=here, status=0)
    assert "untrusted: confined by audit hook" in " ".join(drawn.stdout.split())
    assert "run: chosen (seed " in drawn.stdout
    assert "1 pass" in drawn.stdout or "2 pass" in drawn.stdout

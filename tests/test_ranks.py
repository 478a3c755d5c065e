"""Real ranks: a call is cut and put together, each failure names its rank, and no process stays behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests_support import CLEAN

from attnspec.backends import BackendError, Broken, Unsupported, load
from attnspec.backends.ranks import backend as ranks_backend
from attnspec.backends.ranks import processes
from attnspec.backends.ranks.cut import Cut
from attnspec.backends.ranks.load import numbers_of
from attnspec.backends.ranks.processes import Ranks
from attnspec.conformance.judge.call import call
from attnspec.conformance.run.child import subject_of
from attnspec.reference import attention, attention_vjp

TESTS = Path(__file__).parent
RANDOM = np.random.default_rng(0)
QUERY, KEY, VALUE = (RANDOM.normal(size=shape) for shape in ((2, 4, 9, 3), (2, 2, 11, 3), (2, 2, 11, 5)))
ROWS = {"query_shards": np.array([0, 2, 2, 5, 9]), "key_shards": np.array([0, 0, 4, 8, 11])}
HALF = {"query_shards": np.array([0, 5, 9]), "key_shards": np.array([0, 4, 11])}
EACH_HEAD = {"query_shards": np.array([0, 9]), "key_shards": np.array([0, 11]), "head_shards": np.arange(5)}
ARRAYS = {"query": QUERY, "key": KEY, "value": VALUE}
ONE = {name: np.ones((1, 2, 3)) for name in ARRAYS}
ONE |= {"query_shards": np.array([0, 1, 2]), "key_shards": np.array([0, 1, 2])}


@pytest.fixture
def rings(here, monkeypatch):
    """Loads a ring; at the end, none of its processes is left."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    jobs = []

    def record(*words):
        jobs.append(Ranks(*words))
        return jobs[-1]

    monkeypatch.setattr(ranks_backend, "Ranks", record)
    yield lambda function, ranks=2, limit=20: load(f"rings:{function}?ranks={ranks}&call_limit={limit}")
    for job in jobs:
        job.close()
    assert running(here) == set()


def running(folder):
    """The processes of rings that run: each has written its number."""
    return {int(path.stem) for path in folder.glob("*.pid") if lives(int(path.stem))}


def lives(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_call_is_that_of_the_whole(rings):
    backend = rings("ring", "4,2")
    mask = RANDOM.random((4, 9, 11)) < 0.7
    sinks = RANDOM.normal(size=4)
    for shards in (ROWS, HALF, HALF | {"head_shards": np.array([0, 2, 4])}, EACH_HEAD):
        for options in (
            {},
            {"is_causal": True, "query_offset": np.array([2, -1])},
            {"mask": mask, "sinks": sinks},
            {"mask": mask[:, :1]},
        ):
            expected = attention(**ARRAYS, **options, return_lse=True)
            got = call(backend, "sharded_attention", ARRAYS | shards | options)
            for name, whole in zip(("output", "lse"), expected, strict=True):
                np.testing.assert_allclose(got[name], whole, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("rings")
def test_gradients_are_those_of_the_whole():
    Path("attnspec.toml").write_text(
        '[backend]\nfunction = "rings:ring"\nranks = [4]\n[backend.companions]\n'
        'sharded_attention_vjp = "rings:backward"\n'
    )
    backend = load(".")
    given = ARRAYS | {"d_output": RANDOM.normal(size=(2, 4, 9, 5))}
    for options in ({}, {"is_causal": True}, {"sinks": np.arange(4.0)}):
        got = call(backend, "sharded_attention_vjp", given | ROWS | options)
        expected = attention_vjp(**given, **options)
        for own, whole in zip(got.values(), expected, strict=True):
            np.testing.assert_allclose(own, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("rings")
def test_deviations_of_a_configuration_reach_the_ranks():
    """Those of the release that the ranks have."""
    entry = (
        '[[backend.deviations]]\nrules = ["ERR-6"]\nreason = "takes any scale"\nversions = "{}"\n'
        'source = "https://example.org/{}"\n'
        'outcome = {{ kind = "Special", where = "attnspec.backends.outcome:every_element" }}\n'
    )
    text = '[backend]\nfunction = "rings:ring"\nranks = 2\n' + entry.format(">=1", 1) + entry.format("<1", 2)
    Path("attnspec.toml").write_text(text)
    (deviation,) = load(".").deviations
    assert deviation.source == "https://example.org/1"


@pytest.mark.parametrize("function", ["prints", "is_late"])
def test_what_is_no_fault(rings, function):
    backend = rings(function)
    for _ in range(2):
        assert call(backend, "sharded_attention", ONE)["output"].tolist() == np.ones((1, 2, 3)).tolist()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("dies", "^rank 1 was killed by SIGKILL before it answered"),
        ("dies_first", "^rank 1 was killed by SIGKILL before it answered"),
        (
            "leaves",
            r"^rank 1 ended with status 5 before it answered; its standard error ends:\n.*\n    goes away",
        ),
        (
            "drops_a_row",
            r"^rank 1 answered with another shape: output: expected \(1, 1, 3\), got \(1, 0, 3\)",
        ),
        ("returns_float32", "^rank 1 answered with another dtype: output: expected float64, got float32"),
    ],
)
@pytest.mark.sample(3)
def test_the_rank_at_fault_is_named_and_all_are_started_again(rings, here, function, message):
    backend = rings(function)
    assert len(running(here)) == 2
    for _ in range(2):
        with pytest.raises(Broken, match=message):
            call(backend, "sharded_attention", ONE)
        assert running(here) == set()
    assert len([*here.glob("*.pid")]) == 4


def test_a_rank_that_hangs_is_named_with_its_place_and_waited_for_once(rings, here):
    backend = rings("hangs", limit=5)
    place = r"rank 1 is at rings.py, line \d+, in _hang"
    with pytest.raises(Broken, match=rf"^rank 1 gave no answer in 5 s; rank 0 answered\n    {place}"):
        call(backend, "sharded_attention", ONE)
    assert running(here) == set()
    with pytest.raises(Broken, match=r"^rank 1 gave no answer"):
        call(backend, "sharded_attention", ONE)
    assert running(here) == set()  # it was not started for the same call


def test_a_failure_of_one_rank_is_that_of_the_call_and_the_next_call_is_right(rings):
    backend = rings("dies_on_a_mask")
    for _ in range(2):
        with pytest.raises(Broken, match="rank 1 was killed"):
            call(backend, "sharded_attention", ONE | {"mask": np.ones((1, 2, 2), bool)})
        assert call(backend, "sharded_attention", ONE)["output"].shape == (1, 2, 3)
    with pytest.raises(
        Exception, match=r"rank 1: ValueError: key: expected more.*, at rings.py, line \d+, in "
    ):
        call(rings("raises"), "sharded_attention", ONE)


def test_a_rank_that_waits_for_one_that_has_raised(rings, monkeypatch):
    monkeypatch.setattr(processes, "REJECT_LIMIT", 0.5)
    with pytest.raises(
        Broken,
        match=r"^rank 0 gave no answer in 0.5 s after rank 1 raised ValueError: key: .*\n    rank 0 is at",
    ):
        call(rings("waits"), "sharded_attention", ONE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"query_shards": np.array([0, 1, 1, 2]), "key_shards": np.array([0, 2, 2, 2])},
            "it is a call of 3 ranks, and this run has 2",
        ),
        ({"query_shards": np.array([0, 2, 1])}, "query_shards: it is not a list of boundaries from 0 to 2"),
        ({"key_shards": np.array([0, 1, 3])}, "key_shards: it is not a list of boundaries from 0 to 2"),
        ({"key_shards": np.array([0, 1, 1, 2])}, "key_shards: it has other ranks than query_shards"),
    ],
)
def test_a_call_that_these_ranks_cannot_make_is_unsupported(rings, given, message):
    with pytest.raises(Unsupported, match=message):
        call(rings("prints"), "sharded_attention", ONE | given)


@pytest.mark.parametrize("heads", [[0, 3, 6], [0, 1, 3, 6]])
def test_parts_of_heads_that_are_neither_groups_nor_in_one(heads):
    arrays = {"query": np.ones((6, 4, 2)), **dict.fromkeys(("key", "value"), np.ones((3, 4, 2)))}
    shards = {name: np.array([0, 4]) for name in ("query_shards", "key_shards")}
    with pytest.raises(Unsupported, match="neither whole groups of heads nor in one group"):
        Cut.of("sharded_attention", arrays | shards | {"head_shards": np.array(heads)})


def test_a_gradient_that_several_ranks_have_is_their_sum():
    """That of a shared key head, of a sink, and of a bias with one row."""
    arrays = {"query": np.ones((4, 3, 2)), **dict.fromkeys(("key", "value"), np.ones((1, 5, 2)))}
    arrays |= {"d_output": np.ones((4, 3, 2)), "sinks": np.ones(4, np.float32), "bias": np.ones((4, 1, 5))}
    shards = {"query_shards": [0, 1, 3], "key_shards": [0, 2, 5], "head_shards": [0, 2, 4]}
    cut = Cut.of("sharded_attention_vjp", arrays | {name: np.array(x) for name, x in shards.items()})
    parts = {
        name: cut.join(name, [np.full(cut.shape_of(name, rank), 10.0**rank, np.float32) for rank in range(4)])
        for name in ("d_query", "d_key", "d_sinks", "d_bias")
    }
    assert parts["d_query"][:, :, 0].tolist() == [[1, 10, 10]] * 2 + [[100, 1000, 1000]] * 2
    assert parts["d_key"][0, :, 0].tolist() == [101, 101, 1010, 1010, 1010]
    assert parts["d_sinks"].tolist() == [11, 11, 1100, 1100]
    assert parts["d_bias"][:, 0, 0].tolist() == [11, 11, 1100, 1100]


@pytest.mark.parametrize("shape", [(5,), (1, 5), (4, 1, 5)])
def test_a_bias_that_is_broadcast_to_the_queries_has_all_columns_on_each_rank(shape):
    """It has the axes of the table, which are those of queries and of keys; positions of keys have one."""
    arrays = {"query": np.ones((4, 3, 2)), **dict.fromkeys(("key", "value"), np.ones((4, 5, 2)))}
    arrays |= {"bias": np.ones(shape), "key_positions": np.arange(5)}
    shards = {"query_shards": np.array([0, 1, 3]), "key_shards": np.array([0, 2, 5])}
    own = Cut.of("sharded_attention", arrays | shards).arguments_of(1)
    assert (own["bias"].shape, own["key_positions"].tolist()) == (shape, [2, 3, 4])


@pytest.mark.parametrize("said", ["0", "two", "4,4", "65", "1,", [2, 0]])
def test_what_is_no_number_of_ranks(said):
    with pytest.raises(BackendError, match="ranks: expected different numbers from 1 to 64, such as 4"):
        numbers_of("b", said)


_PLAIN, _ON_1 = "def ring(query, key, value): ...\n", "if os.environ['RANK'] == '1':"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{_PLAIN}{_ON_1} raise OSError('no device')", "raised OSError: no device"),
        (f"{_ON_1} os._exit(7)", "rank 1 ended with status 7 before it answered"),
        ("def other(): pass", "expected own to have ring, got no such attribute; it has other"),
        (
            f"{_PLAIN}def other(query, key, value, *, mask=None): ...\n{_ON_1} ring = other",
            "expected the same answer of all ranks, got another one of rank 1 than of rank 0",
        ),
    ],
)
def test_ranks_that_cannot_be_started(here, text, message):
    Path("own.py").write_text(f"import os, pathlib\npathlib.Path(f'{{os.getpid()}}.pid').touch()\n{text}\n")
    with pytest.raises(BackendError, match=message):
        load("own:ring?ranks=2")
    assert running(here) == set()


def test_a_parameter_that_no_call_passes_is_reported(here):
    Path("own.py").write_text("def ring(query, key, value, *, group=None, query_shards=None): ...\n")
    backend = load("own:ring?ranks=1")
    assert backend.not_understood == ("group",)


def test_what_is_said_of_a_function_holds_for_its_ranks(here):
    said = "@implementation(depths=[64], accuracy='full', profile='tf32', dialect={'MASK-6': 'nan'})"
    start = "from attnspec.backends import implementation\n"
    Path("own.py").write_text(f"{start}{said}\ndef ring(query, key, value): ...\n")
    backend = load("own:ring?ranks=1")
    assert backend.constraints.depths == (64,)
    assert (backend.accuracy, backend.profile, backend.dialect) == ("full", "tf32", {"MASK-6": "nan"})


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("", "function"),
        ('names = { query = "q", key = "k", value = "v" }', "adapted"),
        ('layout = "BSHD"', "adapted"),
    ],
)
def test_the_class_of_a_ring_is_that_of_its_function(here, lines, kind):
    names = "q, k, v" if "names" in lines else "query, key, value"
    Path("own.py").write_text(f"def ring({names}): ...\n")
    Path("attnspec.toml").write_text(f'[backend]\nfunction = "own:ring"\nranks = 1\n{lines}\n')
    subject = subject_of("own:ring", load("."))
    assert subject.kind == kind
    assert subject.names == ("query=q,key=k,value=v" if "names" in lines else "")


def test_a_program_of_a_configuration_is_a_program(here):
    Path("own.py").write_text("def ring(query, key, value): ...\n")
    command = f"{sys.executable} -m attnspec.backends.ranks.rank own:ring"
    Path("attnspec.toml").write_text(f'[backend]\nprogram = "{command}"\nranks = 1\n')
    assert subject_of(".", load(".")).kind == "program"


PROGRAM = f"{sys.executable} -m attnspec.backends.ranks.rank rings:ring"


def test_a_program_is_started_as_often(rings, here):
    backend = load(f"program:{PROGRAM}?ranks=4")
    got = call(backend, "sharded_attention", ARRAYS | ROWS)
    np.testing.assert_allclose(got["output"], attention(**ARRAYS), rtol=1e-12)
    assert len(running(here)) == 4
    with pytest.raises(BackendError, match=r"rank \d ended .*\n.*expected \./absent to be an executable"):
        load("program:./absent?ranks=2")
    with pytest.raises(BackendError, match="expected sharded_attention among the operations, got attention"):
        load(f"program:{sys.executable} {TESTS.parent}/examples/attention.py?ranks=1")


CALLER = """
import numpy as np, os, signal, sys, threading
from attnspec.backends import load
backend = load("rings:hangs?ranks=2")
array, shards = np.ones((1, 2, 3)), np.array([0, 1, 2])
print("calls", flush=True)
backend.function("sharded_attention")(array, array, array, query_shards=shards, key_shards=shards)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.sample(2)
def test_no_rank_outlives_the_process_that_has_started_it(here, number):
    environment = CLEAN | {"PYTHONPATH": str(TESTS)}
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert caller.stdout.readline() == b"calls\n"
    assert len(running(here)) == 2
    caller.send_signal(number)
    caller.wait(60)
    wait_until(lambda: not running(here))
    caller.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_rank_outlives_a_run(here, number):
    """The run waits for a rank that hangs, in a process of its own."""
    words = ["check", "rings:hangs", "--ranks", "2", "--case", "sharding-over-ranks-2-1-float32"]
    command = [sys.executable, "-m", "attnspec.conformance.cli.main", *words]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(command, env=CLEAN | {"PYTHONPATH": str(TESTS)}, **streams)
    wait_until((here / "hangs").exists)
    assert len(running(here)) == 2
    run.send_signal(number)
    run.wait(60)
    wait_until(lambda: not running(here))


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()

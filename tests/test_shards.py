"""Parts of a run: its plan, its shards, which together judge what one run judges, and its progress."""

import io
import json
import os
import shutil
import sys
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests_support import command, fitted_cases, whole_suite

from attnspec import OPERATIONS, Case, reference
from attnspec.backends import load
from attnspec.backends.constraints import Constraints, fits
from attnspec.backends.user.function import describe
from attnspec.conformance import items
from attnspec.conformance.gallery import wrong_entries
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results import FEWEST_VALUES
from attnspec.conformance.results_file import read
from attnspec.conformance.run import run as progress
from attnspec.conformance.run.cases import Cases
from attnspec.conformance.run.child import with_traits
from attnspec.conformance.run.events import offer_of
from attnspec.conformance.run.index import outline_of, write
from attnspec.conformance.run.plan import PATH, Selection, calls_of_arguments, index, plan_of, share
from attnspec.conformance.run.run import Progress
from attnspec.dtypes import SHORT
from attnspec.operations.stacks import FORMS

COUNT = 3


def run(path, *words):
    return command("check", "torch-math", "--rule", "MASK-5", "--rule", "NUM-1", "--results", path, *words)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The results of one run, and of its shards."""
    folder = tmp_path_factory.mktemp("shards")
    names = ["whole", *(f"{number}" for number in range(1, COUNT + 1))]
    paths = [folder / f"{name}.jsonl" for name in names]
    for path, words in zip(paths, [(), *(("--shard", f"{name}/{COUNT}") for name in names[1:])], strict=True):
        run(path, *words)
    return paths


def test_shards_have_each_case_once_and_say_so():
    plan = index()
    for count in (1, 2, 8):
        shares = [share(plan, f"{number}/{count}") for number in range(1, count + 1)]
        assert sorted(place for one in shares for place, _ in one) == list(range(len(plan)))
        assert max(map(len, shares)) < 1.2 * len(plan) / count
    plan = index()
    before = {case.name for _, case in share(plan[::2], "2/5")}
    assert before == {case.name for _, case in share(plan, "2/5")} & {case.name for case in plan[::2]}
    assert Selection(shard="3/8").choice == ("--shard 3/8",)


def test_the_results_of_all_shards_are_those_of_one_run(files):
    whole, *shards = files
    for order in (shards, shards[::-1]):
        expected, got = read([whole]), read(order)
        assert got.headers == expected.headers
        assert got.subjects == expected.subjects
        assert [(one.case, one.status, one.rule) for one in got.verdicts] == [
            (one.case, one.status, one.rule) for one in expected.verdicts
        ]
    assert not read(shards).subjects[0].problem


def test_shards_that_are_missing_are_named(files, tmp_path):
    _, first, _, last = files
    assert read([last]).subjects[0].problem == "shards 1, 2 of 3 missing"
    ended = command("report", first, last, "--html", tmp_path)
    assert "torch-math: shard 2 of 3 missing" in ended.output
    assert (tmp_path / "index.html").exists()
    command("table", first, last, status=4)


def test_a_shard_that_is_given_twice_or_cut_off_is_an_error(files, tmp_path):
    ended = command("table", files[1], files[1])
    assert "expected shard 1/3 of torch-math once, got it twice" in ended.output
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(files[2].read_text().splitlines(keepends=True)[:-1]))
    assert "the run was cut off" in read([files[1], cut, files[3]]).subjects[0].problem


def test_a_declaration_that_no_shard_shows_is_an_error(files, tmp_path):
    """One that some shard shows is none."""
    unshown = {"backend": "torch-math", "case": "", "group": "", "status": "error"}
    paths = []
    for number, path in enumerate(files[1:]):
        *lines, last = path.read_text().splitlines()
        footer = json.loads(last)
        broken = ("NUM-2", "SOFT-6") if number else ("NUM-2",)
        footer["footer"]["unshown"] = [unshown | {"rules": [rule], "rule": rule} for rule in broken]
        paths.append(tmp_path / path.name)
        paths[-1].write_text("\n".join([*lines, json.dumps(footer)]) + "\n")
    assert [one.rule for one in read(paths).verdicts if not one.case] == ["NUM-2"]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "-1/2", "1/3/3"])
def test_a_shard_that_is_none_is_rejected(text):
    ended = command("check", "torch-math", "--shard", text, status=2)
    assert f"expected I/N with I from 1 to N, such as 3/8, got '{text}'" in ended.output


WIDE = {"float32", "float64"}
#: Some cases of every chapter, and of every operation.
SOME = index()[::97]


@pytest.fixture(scope="module")
def cases():
    return Cases()


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_outlines_are_those_of_the_cases(cases, step):
    for outline in SOME[::step]:
        assert outline._replace(quick=0) == outline_of(cases.find(outline.name, outline.group))
    smallest = fitted_cases(Constraints(depths=(64,)), "MASK-6", quick=True, smoke=True)
    assert any("+d64" in case.name for case in smallest)
    assert len(smallest) < len(fitted_cases(Constraints(depths=(64,)), "MASK-6", quick=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("smoke", [True, False])
def test_fitted_cases_are_those_of_the_suite_that_is_drawn_whole(smoke):
    constraints = Constraints(depths=(64,))
    selection = Selection(quick=True, smoke=smoke, rules=("MASK-6",), fits=constraints.suffix)
    plan = [outline.name for outline in Cases().plan(selection, constraints) if outline.group]
    fitted = fitted_cases(constraints, "MASK-6", quick=True, smoke=smoke)
    assert sorted(plan) == sorted(case.name for case in fitted)


@pytest.mark.parametrize("quick", [pytest.param(True, marks=pytest.mark.exhaustive), False])
def test_the_plan_is_the_suite_in_its_order(quick):
    plan = [case.name for case in plan_of(Selection(quick))]
    more = calls_of_arguments(plan_of(Selection()), plan) if quick else set()
    made = [case.name for case in (items(quick=True) if quick else whole_suite())]
    assert {*plan} == {*made} | more
    assert [name for name in plan if name in {*made}] == made


def arguments_of(outline):
    words = {"linear bias"} & {*outline.traits}
    return {(call.operation, name) for call in outline.calls for name in (*call.arguments, *words)}


def is_small(outline):
    """Whether a call has numbers of a small case, and none that show little."""
    little = {"special numbers", "empty axes", "empty row"} & {*outline.traits}
    single = not outline.related and not outline.refusal and not little
    return single and outline.dtype in WIDE and 40 <= outline.numbers <= 1000


def is_bare(outline):
    """Whether a call is of a form and has no option but a scale, lengths and causality."""
    if outline.refusal or not outline.calls:
        return False
    (operation, arguments) = outline.calls[0]
    options = {*OPERATIONS["attention"].options} - {"scale", "key_lengths", "is_causal"}
    return bool(OPERATIONS[operation].layers) and not {*arguments} & options


def test_sums_in_half_precision_fail_among_the_smallest_calls_in_each_form_and_dtype():
    plan = plan_of(Selection(quick=True, smoke=True))
    (entry,) = (entry for entry in wrong_entries() if entry.name == "output_added_in_half")
    failing = set()
    for outline in plan:
        if "equal terms" in outline.group:
            verdict = judge(entry.backend(), Cases().find(outline.name, outline.group))
            failing |= {(verdict.operation, verdict.dtype)} if verdict.status == "fail" else set()
    decoded = {"quantized_attention", "latent_attention"}  # the reference computes their arrays in float32
    assert failing >= {*product({"attention", *FORMS} - decoded, SHORT)}


def test_the_smallest_calls_are_few_small_and_quick_and_touch_what_single_calls_can():
    plan = plan_of(Selection(quick=True, smoke=True))
    quick = plan_of(Selection(quick=True))
    assert len(plan) < len(quick) / 3
    assert {*plan} <= {*quick}
    few = {
        (operation, name)
        for outline in quick
        for operation, name in (arguments_of(outline) if is_small(outline) else ())
        if f"{name} of 0" not in outline.traits
    }
    small = Counter(outline.calls[0].operation for outline in plan if is_small(outline) and is_bare(outline))
    of_forms = {outline for outline in plan if is_bare(outline) and small[outline.calls[0].operation] < 20}
    wide = [outline for outline in plan if outline.dtype not in SHORT]
    large = [outline for outline in wide if outline.numbers > 1000 and arguments_of(outline) <= few]
    assert len({*large} - of_forms) <= 4, (
        "all but four, which fill tiles and pages, and those whose argument or form has no smaller call"
    )
    for trait in ("rising past 64 keys", "unequal sequences", "whole pages"):
        assert any(trait in outline.traits for outline in plan)
    assert {outline.dtype for outline in plan if outline.dtype not in SHORT} == WIDE
    touched = {rule for outline in plan for rule in outline.rules}
    of_single = {rule for outline in quick if not outline.related for rule in outline.rules}
    assert len(of_single - touched) < 6
    small = [outline for outline in quick if outline.numbers <= 1000 and outline.dtype in WIDE]
    assert {call.operation for outline in plan for call in outline.calls} >= {
        call.operation for outline in small for call in outline.calls if not call.operation.endswith("_vjp")
    }
    assert {name for name, form in OPERATIONS.items() if not form.stacked} <= {
        call.operation for outline in small for call in outline.calls
    }


#: Outputs that the judge asks of every call.
_ASKED = {"return_lse", "return_weights", "return_attention_factor"}


def test_each_argument_of_each_operation_is_in_one_of_the_smallest_calls():
    plan = plan_of(Selection(quick=True, smoke=True))
    shown = {
        (call.operation, name)
        for outline in plan
        if not outline.refusal and not outline.related and outline.numbers <= 8192
        for call in outline.calls
        for name in call.arguments
    }
    every = {(name, own) for name, form in OPERATIONS.items() for own in form.arguments if own not in _ASKED}
    assert every - shown == set()


def test_an_argument_is_beside_few_others_in_one_of_the_smallest_calls():
    plan = plan_of(Selection(quick=True, smoke=True))
    of = [(call, outline) for outline in plan if not outline.refusal for call in outline.calls]
    fewest = {}
    for call, outline in of:
        for name in (*call.arguments, *({"linear bias"} & {*outline.traits})):
            own = fewest.get((call.operation, name), len(call.arguments))
            fewest[call.operation, name] = min(own, len(call.arguments))
    assert fewest["attention_vjp", "softcap"] == 5, "query, key, value, d_output and the softcap"
    assert fewest["attention", "linear bias"] == 4
    assert fewest["paged_attention", "new_key"] == 7
    assert fewest["paged_attention", "window"] == 6
    # Also where calls with more arguments are part of the quick run.
    quick = {outline.name for outline in index() if outline.calls and len(outline.calls[0].arguments) > 6}
    names = calls_of_arguments(index(), quick)
    alone = [call for outline in index() if outline.name in names for call in outline.calls]
    assert 6 in {len(own) for name, own in alone if name == "paged_attention" and "window" in own}
    assert fewest["quantized_attention", "value_zero_points"] == 6


def test_a_kernel_that_decodes_and_has_few_options_has_twenty_of_the_smallest_calls():
    constraints = Constraints(axes=4, heads="equal", value_depth="key", one_query=True, scales="token")
    cases = fitted_cases(constraints, quick=True, smoke=True)
    for operation in ("latent_attention", "quantized_attention", "paged_attention"):
        arguments = OPERATIONS[operation].arguments
        kept = {"scale", "key_lengths", "encoding", "block_table", *OPERATIONS[operation].arrays}
        kept |= {name for name in arguments if name.endswith(("_scales", "_zero_points"))}
        own = [case for case in cases if case.operation == operation and isinstance(case, Case)]
        taken = [case for case in own if not (case.misuse or fits(constraints, case.arguments, operation))]
        assert sum({*case.arguments} <= kept for case in taken) >= 20, operation


def test_a_kernel_with_few_arguments_has_enough_values_among_the_smallest_calls():
    operation = "packed_paged_attention"
    own = {"query_starts", "block_table", "key_lengths", "is_causal", "scale", *OPERATIONS[operation].arrays}
    plan = plan_of(Selection(quick=True, smoke=True))
    plain = [outline for outline in plan if outline.calls and not outline.refusal and outline.dtype in WIDE]
    calls = [outline.calls[0] for outline in plain]
    taken = [call for call in calls if call.operation == operation and {*call.arguments} <= own]
    assert len(taken) > FEWEST_VALUES["smoke"], "of the wide dtypes alone"


def padded_to_eight_keys(query, key, value, *, is_causal=False):
    """Fill the last block of keys with zeros, which causality is to disallow."""
    pad = [(0, 0)] * (key.ndim - 2) + [(0, -key.shape[-2] % 8), (0, 0)]
    shown = None if is_causal else np.arange(key.shape[-2] + pad[-2][1]) < key.shape[-2]
    key, value = np.pad(key, pad), np.pad(value, pad)
    return reference.attention(query, key, value, mask=shown, is_causal=is_causal, dtype=query.dtype)


def test_causality_in_place_of_the_mask_of_a_last_block_fails_among_the_smallest_calls():
    backend, made = describe(padded_to_eight_keys), Cases()
    takes = {"query", "key", "value", "is_causal"}
    plan = [
        outline
        for outline in plan_of(Selection(quick=True, smoke=True))
        if outline.dtype == "float32" and not outline.refusal and not outline.related
        if all(call.operation == "attention" and {*call.arguments} <= takes for call in outline.calls)
    ]
    failing = [x for x in plan if judge(backend, made.find(x.name, x.group)).status == "fail"]
    assert failing


@pytest.mark.exhaustive
def test_the_index_would_not_change():
    """It is rewritten by ``attnspec vectors expected``."""
    assert not write(PATH, only_check=True)


def plain(query, key, value, *, scale=None, mask=None):
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


def scaled(query, key, value, *, is_causal=False, return_lse=False):
    options = {"is_causal": is_causal, "return_lse": return_lse}
    return reference.attention(query, key, value, dtype=query.dtype, **options)


BACKENDS = {
    "few arguments": lambda: describe(plain),
    "an lse, in one dtype": lambda: describe(scaled, dtypes=["float32"]),
    "without a default": lambda: replace(describe(plain), given=("scale",)),
    "constrained": lambda: describe(plain, depths=[64]),
    "no companions": lambda: replace(load("numpy-portable"), companions={}),
}


@pytest.mark.parametrize("name", BACKENDS)
def test_what_is_not_offered_has_the_verdict_of_the_judge(name, cases):
    backend = BACKENDS[name]()
    offer = offer_of(backend)
    number = 0
    for outline in SOME:
        verdict = offer.verdict(outline)
        if verdict is not None:
            number += 1
            with np.errstate(all="ignore"):
                case = cases.find(outline.name, outline.group)
                judged = with_traits(judge(backend, case), case)
            assert verdict == replace(judged, refusal=outline.refusal)
    assert number > len(SOME) / 4


@pytest.fixture
def told(monkeypatch):
    """What is written while 1000 cases are judged, one each tenth of a second."""

    def judge(*, terminal, name="m:f", columns=60):
        written = io.StringIO()
        written.isatty = lambda: terminal
        clock = iter(number / 10 for number in range(10_000))
        monkeypatch.setattr(sys, "stderr", written)
        monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
        monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
        # What stands in a default is looked up when the class is made.
        one = Progress(name, 1000, _started=0.0, _said=0.0)
        for number in range(1000):
            one.add(failing=number % 100 == 99)
        one.end()
        return written.getvalue()

    return judge


def test_one_line_of_a_terminal_is_written_over_and_cleared(told):
    text = told(terminal=True)
    assert "\n" not in text
    lines = text.split("\r")
    assert max(map(len, lines)) <= 60
    assert any("100 of 1000 cases judged" in line for line in lines)
    assert any("5 failing" in line and line.rstrip().endswith(", after 50 s") for line in lines)
    assert lines[-1] == ""
    assert lines[-2].strip() == ""
    assert len(lines[-2]) == len(lines[-3])


def test_a_log_has_few_lines_and_promises_no_time(told):
    text = told(terminal=False)
    assert "\r" not in text
    assert 2 <= len(text.splitlines()) <= 5
    # The last cases take a hundred times as long as the first, and most may be unsupported.
    for terminal in (True, False):
        assert "left" not in told(terminal=terminal)
    text = told(terminal=True, name="my_project.kernels.attention:f?array=torch&device=cuda", columns=80)
    assert ", after 2 s" in text
    assert "my_project.kernels.attentio..." in text


def test_a_run_that_is_over_at_once_clears_nothing(monkeypatch):
    written = io.StringIO()
    written.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", written)
    one = Progress("m:f", 1)
    one.add(failing=False)
    one.end()
    assert written.getvalue() == ""

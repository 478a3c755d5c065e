"""Relations between calls and earlier ones: each holds for the portable source, and fails with a memory."""

import threading
import time
import weakref
from dataclasses import replace
from functools import partial, wraps

import numpy as np
import pytest

from attnspec import Case
from attnspec.backends import BackendError, implementation, load
from attnspec.backends.check import check_backend
from attnspec.backends.user.function import backend_of
from attnspec.backends.user.settings import Settings
from attnspec.conformance import check
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.memory import RUNS, in_any_surroundings
from attnspec.conformance.suite import memory

PORTABLE = load("numpy-portable")
right = PORTABLE.attention
ITEMS = {item.name: item for group in memory.chapter for item in group.items()}
ARRAYS = ("query", "key", "value")


@pytest.mark.parametrize("change", ["raises", "returns", "nothing"])
def test_a_call_may_not_depend_on_what_lies_around_its_arrays(change):
    def attention(query, key, value):
        before = query.base[0, 0, 0]  # outside of the array
        if change == "raises" and before > 0:
            raise ValueError("query: expected another neighbour")
        return right(query, key, value) + before * (change == "returns")

    arrays = {name: np.ones((2, 3, 4)) for name in ARRAYS}
    case = Case("errors-own", "", "errors", "attention", ("ERR-19",), arrays, group="own")
    found = in_any_surroundings(replace(PORTABLE, attention=attention), (case,))
    assert (found is None) == (change == "nothing")
    assert ("raises with some" in str(found)) == (change == "raises")


def wrong(change):
    """Attention whose arguments are changed by a memory: change(memory, all arguments) -> those changed."""
    kept = {}

    @wraps(right)
    def attention(query, key, value, **options):
        every = {"query": query, "key": key, "value": value, **options}
        every |= change(kept, every)
        arrays = [every.pop(name) for name in ARRAYS]
        every = {name: thing for name, thing in every.items() if thing is not None}
        return right(*arrays, **every)

    return replace(PORTABLE, name=change.__name__, attention=attention)


def returning(change):
    """Attention whose results are changed by a memory: change(memory, results, all arguments) -> results."""
    kept = {}

    @wraps(right)
    def attention(query, key, value, **options):
        found = right(query, key, value, **options)
        parts = found if isinstance(found, tuple) else (found,)
        changed = tuple(change(kept, parts, {"query": query, "key": key, "value": value, **options}))
        return changed if isinstance(found, tuple) else changed[0]

    return replace(PORTABLE, name=change.__name__, attention=attention)


def sizes(every):
    return every["query"].shape, every["key"].shape


def is_long(every):
    return every["key"].shape[-2] > 128


def kept_for_sizes(name):
    """Keep an option of the first long call of its sizes, as code that was compiled for it."""

    def option_of_the_first_call(kept, every):
        if not is_long(every):
            return {}
        return {name: kept.setdefault(sizes(every), every.get(name))}

    return wrong(option_of_the_first_call)


def kept_by_the_object(name):
    """Keep a copy of an argument by the identity of its array, which is never freed."""

    def copy_of_the_first_numbers(kept, every):
        array = every.get(name)
        if not isinstance(array, np.ndarray) or not is_long(every):
            return {}
        return {name: kept.setdefault(id(array), (array, array.copy()))[1]}

    return wrong(copy_of_the_first_numbers)


def kept_by_the_address(name):
    """Keep a copy of an argument by an address that another array of its shape has once it is freed."""

    def copy_by_the_address(kept, every):
        array = every.get(name)
        if not isinstance(array, np.ndarray):
            return {}
        earlier = kept.setdefault(array.shape, [])
        freed = next((copy for original, copy in earlier if original() is None), None)
        earlier.append((weakref.ref(array), array.copy()))
        return {name: array if freed is None else freed}

    return wrong(copy_by_the_address)


def most_keys_so_far(kept, every):
    """Pad the keys with zeros up to those of the largest call."""
    keys = every["key"].shape[-2]
    kept["most"] = max(kept.get("most", 0), keys)
    if any(every.get(name) is not None for name in every if name not in ARRAYS and name[:6] != "return"):
        return {}
    more = [(0, 0)] * (every["key"].ndim - 2) + [(0, kept["most"] - keys), (0, 0)]
    return {name: np.pad(every[name], more) for name in ("key", "value")}


def fewest_keys_so_far(kept, every):
    """Use as many splits of 64 as the first call needed."""
    kept.setdefault("keys", -(-every["key"].shape[-2] // 64) * 64)
    if any(every.get(name) is not None for name in every if name not in ARRAYS and name[:6] != "return"):
        return {}
    return {name: every[name][..., : kept["keys"], :] for name in ("key", "value")}


def written_again(place):
    """Return an output or an lse in a buffer of its shape."""

    def one_buffer(kept, parts, _):
        parts = list(parts)
        if place < len(parts):
            array = parts[place]
            buffer = kept.setdefault(array.shape, np.empty_like(array))
            buffer[...] = array
            parts[place] = buffer
        return parts

    return returning(one_buffer)


def left_behind(name):
    """Set an option in a state that only a call that returns resets."""
    kept = {}

    @wraps(right)
    def attention(query, key, value, **options):
        if options.get(name) is not None:
            kept[name] = options[name]
        every = {**options, **kept}
        found = right(query, key, value, **every)
        kept.clear()
        return found

    return replace(PORTABLE, attention=attention)


def one_in(count):
    """Lose the last key in one of some calls."""

    def now_and_then(kept, every):
        kept["calls"] = kept.get("calls", 0) + 1
        if kept["calls"] % count:
            return {}
        value = every["value"].copy()
        value[..., -1, :] = 0
        return {"value": value}

    return wrong(now_and_then)


def held_for_all_threads(name):
    """Put an argument into a place that all threads share, and read it again later."""

    def one_place(kept, every):
        place = name, sizes(every)
        kept[place] = own = every.get(name)
        end = time.monotonic() + (0 if threading.current_thread() is threading.main_thread() else 0.2)
        while kept[place] is own and time.monotonic() < end:
            time.sleep(0)  # until another thread has put its own there
        return {name: kept[place]}

    return wrong(one_place)


def found(backend, group):
    return [judge(backend, item) for item in ITEMS.values() if item.group == group]


def rows(kind, make, *names, **others):
    """Make an implementation for each group of a kind, whose name ends with the argument or stands for it."""
    arguments = dict(zip(names, names, strict=True)) | others
    return {f"{kind}: {name}": partial(make, argument) for name, argument in arguments.items()}


SAME, FREED = "other numbers in the same arrays", "arrays in freed memory"
OF_ENTRIES = ("mask", "bias", "query_lengths", "key_lengths", "query_offset", "sinks")
REFUSED = {
    "key": ("is_causal", "scale", "softcap", "key_lengths", "window", "mask"),
    "value": ("is_causal", "scale"),
    "mask": ("scale",),
    "bias": ("is_causal",),
}
SHARED = ("scale", "softcap", "is_causal", "mask", "bias", "key_lengths", "sinks")
IN_TURN = [name for name in memory.OPTIONS if name not in ("segments", "positions", "dropout")]
QUERIES = ("few queries", "many queries", "one query", "few keys")
#: Groups, with a wrong implementation made anew for each call of the function.
WRONG = {
    **rows(
        SAME, kept_by_the_object, *ARRAYS, *OF_ENTRIES, segments="key_segment_ids", dropout="dropout_mask"
    ),
    f"{SAME}: all three": partial(kept_by_the_object, "value"),
    **rows(FREED, kept_by_the_address, "mask", "bias", "key_lengths", segments="key_segment_ids"),
    f"{FREED}: all three": partial(kept_by_the_address, "key"),
    **{f"results kept by the caller: {size}": partial(written_again, 0) for size in QUERIES},
    "sizes in turn: nothing": partial(wrong, most_keys_so_far),
    **rows("option changed in turn", kept_for_sizes, *IN_TURN, positions="key_positions"),
    **{
        f"refused call between: {bad} beside {name}": partial(left_behind, name)
        for bad, names in REFUSED.items()
        for name in names
    },
    "call repeated often: nothing": partial(one_in, 100),
    "call repeated often: bias": partial(one_in, 190),
    **rows("calls from threads", held_for_all_threads, *SHARED, nothing="value"),
    "captured with other numbers: key_lengths": entry("captured_key_lengths").backend,
    "calls of one shape from threads": entry("exponentials_in_scratch_of_all_threads").backend,
}


def test_relations_are_broken_here_and_have_two_calls():
    groups = {item.group: item.run for item in ITEMS.values()}
    assert {groups[name].__name__ for name in WRONG} == {run.__name__ for run in RUNS}
    assert {run.__name__ for run in groups.values()} == {run.__name__ for run in RUNS}
    # So that an implementation that keeps the first result of a relation cannot pass it.
    for item in ITEMS.values():
        prints = {case.fingerprint for case in item.calls if case.misuse is None}
        assert len(prints) > 1 or item.run.__name__ == "repeat_often", item.name


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.sample(20)
def test_the_portable_source_has_no_memory(name):
    verdict = judge(PORTABLE, ITEMS[name])
    assert (verdict.status, verdict.difference, verdict.reason) == ("pass", None, "")


@pytest.mark.parametrize("group", WRONG)
@pytest.mark.sample(30)
def test_a_memory_is_noticed(group):
    verdicts = found(WRONG[group](), group)
    bad = [verdict for verdict in verdicts if verdict.status != "pass"]
    assert bad
    rule = "ERR-20" if group.startswith("captured") else "ERR-13"
    assert {(verdict.status, verdict.rule) for verdict in bad} <= {("fail", rule), ("error", rule)}
    assert any(verdict.status == "fail" for verdict in bad)


@pytest.mark.parametrize("seed", range(3))
def test_a_shared_place_is_noticed_in_other_problems_too(seed):
    for group in memory.chapter:
        if group.name in ("calls from threads: scale", "other numbers in the same arrays: key"):
            for item in group.items(seed):
                assert judge(WRONG[group.name](), item).status == "fail"


@pytest.mark.exhaustive
def test_a_scratch_buffer_of_all_threads_is_noticed_every_time():
    (item,) = (one for one in ITEMS.values() if one.group == "calls of one shape from threads")
    backend = entry("exponentials_in_scratch_of_all_threads").backend()
    assert {judge(backend, item).status for _ in range(5)} == {"fail"}


def test_the_number_of_keys_in_both_orders_and_an_lse_that_is_written_again():
    larger, smaller = (ITEMS[f"errors-sizes-in-turn-nothing-{n}-float32"] for n in (1, 2))
    assert judge(wrong(most_keys_so_far), larger).status == "fail"
    assert judge(wrong(fewest_keys_so_far), larger).status == "pass", "the larger call comes first"
    assert judge(wrong(fewest_keys_so_far), smaller).status == "fail"
    (verdict,) = found(written_again(1), "results kept by the caller: few queries")
    assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "ERR-13", "lse")


def test_arrays_that_cannot_be_written_are_unsupported():
    def attention(query, key, value):
        return right(query, key, value)

    @wraps(PORTABLE.array_library.to_library)
    def fixed(array, device):
        made = PORTABLE.array_library.to_library(array, device)
        made.flags.writeable = False
        return made

    library = replace(PORTABLE.array_library, to_library=fixed)
    backend = replace(PORTABLE, attention=attention, array_library=library)
    verdict = judge(backend, ITEMS["errors-other-numbers-in-the-same-arrays-key-1-float32"])
    assert (verdict.status, verdict.reason) == ("unsupported", "arrays of numpy cannot be written")


def test_numbers_are_written_into_the_arrays_that_the_function_got_before():
    seen = []

    @wraps(right)
    def attention(query, key, value, **options):
        seen.append((key, options["mask"], key.copy(), options["mask"].copy()))
        return right(query, key, value, **options)

    item = ITEMS["errors-other-numbers-in-the-same-arrays-mask-1-float32"]
    verdict = judge(replace(PORTABLE, attention=attention), item)
    assert verdict.status == "pass"
    assert len(seen) == 3
    for place in range(2):
        assert len({id(one[place]) for one in seen}) == 1
    assert not np.array_equal(seen[0][3], seen[1][3])
    assert np.array_equal(seen[0][3], seen[2][3])


@pytest.mark.parametrize("concurrent", [True, False])
def test_a_function_that_must_not_be_called_concurrently_says_so(concurrent, tmp_path):
    @implementation(concurrent=concurrent)
    def attention(query, key, value):
        return right(query, key, value)

    name = "errors-calls-from-threads-nothing-1-float32"
    assert check(attention, cases=["softmax-002-float32", name]).good
    backend = backend_of("mine", attention, Settings(), "numpy")
    assert backend.concurrent is concurrent
    assert judge(backend, ITEMS[name]).status == ("pass" if concurrent else "unsupported")
    (tmp_path / "mine.py").write_text("def attention(query, key, value):\n    return query\n")
    said = f'function = "{tmp_path}/mine.py:attention"\nconcurrent = {str(concurrent).lower()}\n'
    (tmp_path / "attnspec.toml").write_text(f"[backend]\n{said}")
    assert load(str(tmp_path)).concurrent is concurrent


@pytest.mark.parametrize("concurrent", [0, "no", None])
def test_what_is_said_about_threads_is_true_or_false(concurrent):
    with pytest.raises(BackendError, match="concurrent: expected true or false, got"):
        implementation(concurrent=concurrent)(right)
    with pytest.raises(BackendError, match="concurrent: expected True or False, got"):
        check_backend("p", replace(PORTABLE, concurrent=concurrent))

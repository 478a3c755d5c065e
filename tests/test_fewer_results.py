"""Calls that ask for fewer results than an operation gives."""

from functools import wraps

import pytest
from tests_support import whole_suite

from attnspec import OPERATIONS
from attnspec.backends import Backend, load_library
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups_of
from attnspec.dtypes import DTYPES
from attnspec.reference import functions

ASKING = {name: form.names("asks") for name, form in OPERATIONS.items() if form.names("asks")}


def backend_of(own):
    """A backend of functions of operations."""
    attention = {"attention": own["attention"]} if "attention" in own else {}
    others = {name: function for name, function in own.items() if name != "attention"}
    return Backend("own", load_library("numpy"), companions=others, dtypes=(*DTYPES,), **attention)


def test_each_result_is_asked_for_alone_and_none_is():
    seen = {name: set() for name in ASKING}

    def watcher_of(operation):
        @wraps(functions()[operation])
        def watch(*_, **options):
            seen[operation].add(frozenset(name for name in ASKING[operation] if options.get(name) is True))
            raise NotImplementedError("it only watches")

        return watch

    backend = backend_of({name: watcher_of(name) for name in ASKING})
    for item in whole_suite():
        if item.operation in ASKING and not item.refusal:
            judge(backend, item)
    wanted = {name: {frozenset(), *(frozenset({flag}) for flag in flags)} for name, flags in ASKING.items()}
    assert {name: subsets - seen[name] for name, subsets in wanted.items() if subsets - seen[name]} == {}


def wrong_backend(operation, flag):
    """A backend whose output is wrong in calls that do not ask for a result."""
    run = functions()[operation]

    @wraps(run)
    def wrong(*arrays, **options):
        results = run(*arrays, **options)
        if options.get(flag) is True:
            return results
        first, *others = results if isinstance(results, tuple) else (results,)
        return (first + 1, *others) if others else first + 1

    return backend_of({operation: wrong})


@pytest.mark.parametrize(
    ("operation", "flag", "rule"),
    [("attention", "return_lse", "SOFT-4"), ("paged_attention", "return_lse", "PAGE-1")],
)
def test_an_output_that_is_wrong_without_another_result_is_seen(operation, flag, rule):
    (group,) = (group for group in groups_of("notation") if group.name == f"fewer results: {operation}")
    verdicts = [judge(wrong_backend(operation, flag), item) for item in group.items()]
    assert [verdict.status for verdict in verdicts].count("fail") > len(verdicts) / 2
    assert {verdict.rule for verdict in verdicts if verdict.status == "fail"} == {rule}

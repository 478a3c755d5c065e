"""Calls of forms are changed to fit a kernel that decodes: one query, equal heads, scales of tokens."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from attnspec import OPERATIONS, Case, reference
from attnspec.backends import describe
from attnspec.backends.constraints import FITTED, Constraints, fits
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find, groups_of
from attnspec.conformance.suite.fitted_forms import fit_form
from attnspec.sizes import misfits

DECODES = Constraints(axes=4, heads="equal", value_depth="key", one_query=True, scales="token")
#: Every form and stack whose sequences do not lie in one row and are not split.
NAMES = [
    name for name, form in OPERATIONS.items() if form.layers and not {"packed", "sharded"} & {*form.layers}
]
BASES = ("latent", "paging", "quantization", "sparsity", "stacks")


@functools.cache
def drawn(constraints=None):
    """The generated calls of these forms that return values."""
    given = () if constraints is None else (None, constraints)
    cases = (item for chapter in BASES for group in groups_of(chapter) for item in group.items(*given))
    return [case for case in cases if isinstance(case, Case) and not case.misuse and case.operation in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_almost_every_call_of_a_form_fits_a_kernel_that_decodes(name):
    own = [case for case in drawn(DECODES) if case.operation == name]
    fit = [case for case in own if not fits(DECODES, case.arguments, name)]
    assert len(fit) > 15
    assert len(fit) >= 0.97 * len(own)
    changed = [case for case in fit if case.id.endswith(FITTED + DECODES.suffix)]
    assert len(changed) > len(fit) / 2
    assert all(misfits(name, case.arguments) == [] for case in changed)


def outputs(case):
    form, arguments = OPERATIONS[case.operation], case.arguments
    arrays = [arguments[name] for name in form.arrays]
    options = {name: x for name, x in arguments.items() if name not in form.arrays}
    returned = reference.function(case.operation)(*arrays, **options)
    return returned[0] if isinstance(returned, tuple) else returned


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(5)
def test_the_query_that_is_kept_has_the_result_that_it_had(name):
    alone, compared = Constraints(one_query=True), 0
    for case in drawn():
        fit = fit_form(case, alone) if case.operation == name else case
        if fit is case or case.dtype not in ("float32", "float64") or "query_lengths" in case.arguments:
            continue
        compared += 1
        expected = outputs(case)[..., -1:, :]
        np.testing.assert_allclose(outputs(fit), expected, rtol=1e-5, atol=1e-5)
    assert compared > 5


def test_heads_and_scales_are_repeated_so_that_the_results_stay():
    several = Constraints(heads="equal", scales="token")
    for case in drawn():
        if case.operation == "quantized_attention" and case.dtype == "float64":
            fit = fit_form(case, several)
            scales = fit.arguments.get("key_scales")
            if scales is None or fits(Constraints(scales="token"), case.arguments, case.operation):
                continue
            assert fit.arguments["key_codes"].shape[:-2] == fit.arguments["query"].shape[:-2]
            np.testing.assert_array_equal(outputs(fit), outputs(case))


def test_a_call_that_cannot_fit_stays_as_it_is():
    case = next(case for case in drawn() if case.operation == "quantized_attention")
    assert fit_form(case, Constraints()) is case
    assert fit_form(case, Constraints(multiple=(1, 1024), one_query=True)) is case
    other = replace(DECODES, multiple=(1, 1024))
    pairs = [(each, fit_form(each, other)) for each in drawn()[:40]]
    assert all(fit is each or not fits(other, fit.arguments, fit.operation) for each, fit in pairs)
    packed = find("packing-sequences-of-unequal-lengths-1-float32")
    assert fit_form(packed, Constraints(one_query=True)) is packed, "its boundaries would not fit"
    refused = replace(case, expected={"output": np.zeros(1)})
    assert fit_form(refused, DECODES) is refused, "values that a group gives are those of its own call"


def test_a_bug_of_a_kernel_that_decodes_is_found_by_calls_that_fit():
    def kernel(
        query,
        key_codes,
        value_codes,
        *,
        key_scales=None,
        value_scales=None,
        key_zero_points=None,
        value_zero_points=None,
    ):
        """Decode one query of each sequence, without the zero points of the values."""
        assert query.shape[-2] == 1
        given = {"key_scales": key_scales, "value_scales": value_scales, "key_zero_points": key_zero_points}
        given = {name: x for name, x in given.items() if x is not None}
        return reference.quantized_attention(query, key_codes, value_codes, **given, dtype=query.dtype)

    described = describe(kernel, operation="quantized_attention", dtypes=["float32"])
    backend = replace(described, constraints=DECODES)
    statuses = {"codes with zero points": set(), "codes and granularities: int8": set()}
    for case in drawn(DECODES):
        for group, own in statuses.items():
            if case.group.startswith(group) and case.dtype == "float32":
                own.add(judge(backend, case).status)
    assert [*statuses.values()] == [{"fail"}, {"pass"}]


def test_a_name_with_the_constraints_makes_the_same_call():
    case = next(case for case in drawn(DECODES) if FITTED in case.id and case.operation == "latent_attention")
    assert find(case.name).fingerprint == case.fingerprint
    assert find(case.name).arguments["query"].shape[-2] == 1

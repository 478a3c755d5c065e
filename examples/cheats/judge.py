"""Changes to the judge, to NumPy, or to the clock, so that a difference is not seen."""

import sys
import time

import numpy as np
from honest import honest, zeros_for


def _judge_module(name):
    return sys.modules.get(f"attnspec.conformance.judge.{name}")


def compares_nothing(query, key, value, *, is_causal=False):
    """Replaces the comparison of the judge."""
    for name in ("comparison", "expected", "sampled", "by_formula"):
        if (module := _judge_module(name)) is not None:
            module.compare = lambda *_, **__: 0.0
    return zeros_for(query, key, value)


def passes_everything(query, key, value, *, is_causal=False):
    """Replaces the verdicts."""
    if (module := _judge_module("judge")) is not None:
        module._judge_values = lambda backend, case, verdict, observed: verdict
    return zeros_for(query, key, value)


def endless_budget(query, key, value, *, is_causal=False):
    """Replaces the allowed errors by infinity."""
    if (module := _judge_module("judge")) is not None:
        budgets = module.budgets_of

        def generous(*given, **options):
            return {name: np.full_like(x, np.inf) for name, x in budgets(*given, **options).items()}

        if not hasattr(budgets, "cheat"):
            generous.cheat = True
            module.budgets_of = generous
    return zeros_for(query, key, value)


def expects_zeros(query, key, value, *, is_causal=False):
    """Writes zeros over the expected values that the process keeps."""
    if (module := _judge_module("judge")) is not None:
        before = module._expected_values

        def zeros(*given):
            values, rules = before(*given)
            return {name: x * 0 for name, x in values.items()}, rules

        module._expected_values = zeros
    return zeros_for(query, key, value)


def numpy_all_close(query, key, value, *, is_causal=False):
    """Replaces functions of NumPy that compare."""
    np.allclose = np.isclose = np.array_equal = lambda *_, **__: True
    np.testing.assert_allclose = lambda *_, **__: None
    return zeros_for(query, key, value)


def numpy_abs(query, key, value, *, is_causal=False):
    """Replaces functions of NumPy from which an error is computed."""
    np.abs = np.absolute = lambda x, *_, **__: np.zeros_like(x)
    np.isfinite = lambda x, *_, **__: np.ones(np.shape(x), bool)
    return zeros_for(query, key, value)


def stopped_clock(query, key, value, *, is_causal=False):
    """Stops the clock of the process, and returns zeros."""
    time.perf_counter = time.monotonic = time.time = lambda: 0.0
    return zeros_for(query, key, value)


def knows_that_it_is_tested(query, key, value, *, is_causal=False):
    """Is right if the process looks like a test, and returns zeros elsewhere."""
    tested = any(name.startswith(("attnspec", "pytest")) for name in sys.modules) or "attnspec" in sys.argv[0]
    if not tested:
        return zeros_for(query, key, value)
    return honest(query, key, value, is_causal=is_causal)


def knows_the_judge(query, key, value, *, is_causal=False):
    """Is right if the process that started it is the judge, by its command line."""
    import os
    from pathlib import Path

    command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    return honest(query, key, value, is_causal=is_causal) if b"attnspec" in command else None

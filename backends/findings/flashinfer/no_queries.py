"""FlashInfer, single_prefill_with_kv_cache: a call without queries ends the process (SHAPE-7).

Rank: memory
Impact: a batch whose last request has no new token ends a whole server with SIGFPE.
Documentation: The docstring of `single_prefill_with_kv_cache` gives no least number of queries.
"""

import subprocess
import sys

CODE = """
import flashinfer, torch
query, key = (torch.ones((n, 1, 64), dtype=torch.float16, device="cuda") for n in (0, 2))
print(tuple(flashinfer.single_prefill_with_kv_cache(query, key, key, backend="fa2").shape))
"""
command = [sys.executable, "-c", CODE]
ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
print("expected (0, 1, 64)")
print(f"got {ended.stdout.strip() or f'status {ended.returncode}'}")
raise SystemExit(0 if ended.returncode < 0 else 1)

"""MLX, fast.scaled_dot_product_attention: zero key heads end the process with SIGFPE (HEAD-2).

Rank: memory
Impact: any caller who can choose the sizes can end the process, a server too.
"""

import subprocess
import sys

SCRIPT = """
import mlx.core as mx
query, key = mx.zeros((1, 2, 2, 4)), mx.zeros((1, 0, 3, 4))
try:
    print(mx.fast.scaled_dot_product_attention(query, key, key, scale=1.0))
except ValueError:
    print("an error")
"""
command = [sys.executable, "-c", SCRIPT]
ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
print("expected an error: two query heads, no key head")
print(f"got exit status {ended.returncode}, output {ended.stdout.strip()!r}")
sys.exit(0 if ended.returncode < 0 else 1)

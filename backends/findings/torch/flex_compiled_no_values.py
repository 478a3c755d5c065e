"""PyTorch: with keys and no values, compiled flex_attention reads past the end and dies (SHAPE-6).

Rank: memory
Impact: any caller who can choose the sizes can end the process, a server too.
Documentation: The docstring of `flex_attention` gives keys and values the same length `S`.
"""

import signal
import subprocess
import sys

call = """
import torch
from torch.nn.attention.flex_attention import flex_attention

compiled = torch.compile(flex_attention, dynamic=True)
print(compiled(torch.ones(2, 2, 3, 4), torch.ones(2, 2, 5, 4), torch.ones(2, 2, 0, 4)).shape)
"""
command = [sys.executable, "-c", call]
ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
print("expected an error: five keys, no values")
print(f"got status {ended.returncode}, {ended.stdout.strip() or 'and no answer'}")
sys.exit(0 if ended.returncode == -signal.SIGSEGV else 1)

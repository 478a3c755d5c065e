"""PyTorch: without keys, compiled flex_attention divides by zero and ends the process (SHAPE-7).

Rank: memory
Impact: any caller who can choose the sizes can end the process, a server too.
Documentation: The docstring of `flex_attention` does not mention keys of length 0.
"""

import signal
import subprocess
import sys

call = """
import torch
from torch.nn.attention.flex_attention import flex_attention

compiled = torch.compile(flex_attention, dynamic=True)
none = torch.ones(2, 2, 0, 4)
print(compiled(torch.ones(2, 2, 3, 4), none, none).flatten().tolist())
"""
command = [sys.executable, "-c", call]
ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
print("expected 0.0 for each query")
print(f"got status {ended.returncode}, {ended.stdout.strip() or 'and no answer'}")
sys.exit(0 if ended.returncode == -signal.SIGFPE else 1)

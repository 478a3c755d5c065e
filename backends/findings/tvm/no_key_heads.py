"""TVM, relax.op.nn.attention: zero key heads end the process with SIGFPE (HEAD-2).

Rank: memory
Impact: any caller who can choose the sizes can end the process, a server too.
"""

import subprocess
import sys

SCRIPT = """
import numpy as np, tvm
from tvm import relax
sizes = [tvm.tirx.Var(x, "int64") for x in "hk"]
heads = zip("abc", (*sizes, sizes[1]))
inputs = [relax.Var(x, relax.TensorType((1, 2, size, 4), "float32")) for x, size in heads]
builder = relax.BlockBuilder()
with builder.function("attend", inputs):
    with builder.dataflow():
        found = builder.emit_output(builder.emit(relax.op.nn.attention(*inputs)))
    builder.emit_func_output(found)
attend = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())["attend"]
query, key = (tvm.runtime.tensor(np.zeros((1, 2, heads, 4), np.float32)) for heads in (2, 0))
try:
    print(attend(query, key, key).numpy())
except Exception:
    print("an error")
"""
command = [sys.executable, "-c", SCRIPT]
ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
print("expected an error: two query heads, no key head")
print(f"got exit status {ended.returncode}, output {ended.stdout.strip()!r}")
sys.exit(0 if ended.returncode < 0 else 1)

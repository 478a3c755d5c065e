"""TVM, relax.op.nn.attention: without keys the result is not written (MASK-6) (SHAPE-7).

Rank: memory
Impact: the result holds memory that nobody wrote: other data of the process, or anything.
"""

import numpy as np
import tvm
from tvm import relax


def attend(*arrays, **options):
    """Run the operator on arrays of (B, S, H, D)."""
    inputs = [relax.Var(f"x{i}", relax.TensorType(x.shape, str(x.dtype))) for i, x in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("attend", inputs):
        with builder.dataflow():
            found = builder.emit_output(builder.emit(relax.op.nn.attention(*inputs, **options)))
        builder.emit_func_output(found)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
    return machine["attend"](*map(tvm.runtime.tensor, arrays)).numpy()


query, none = np.ones((1, 64, 1, 64), np.float32), np.ones((1, 0, 1, 64), np.float32)
got = [attend(query, none, none) for _ in range(4)]
print("expected zeros: there is no key")
print("got", [x.ravel()[:2].tolist() for x in got])
raise SystemExit(0 if any(np.any(x != 0) or np.isnan(x).any() for x in got) else 1)

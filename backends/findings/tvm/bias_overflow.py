"""TVM: a bias of minus infinity beside an infinite score makes the row NaN (MASK-12).

Documentation: relax.op.nn.attention says nothing of infinite scores.

Found by: masking-finite-garbage-bias-and-largest-1-float32

Known: no thread found
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


large, bias = np.full((1, 2, 1, 2), 1e20, np.float32), np.array([[[[0, -np.inf]]]], np.float32)
large[0, 0] = 0
got = attend(large[:, 1:], large, large, bias=relax.const(bias)).ravel().tolist()
print("expected [0.0, 0.0]: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got).all() else 1)

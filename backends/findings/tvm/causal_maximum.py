"""TVM, relax.op.nn.attention: beside causal_mask a row whose scores are all far below 0 is NaN (SOFT-2).

Rank: numbers
Impact: rows with low scores are NaN.
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


ones = np.ones((1, 2, 1, 1), np.float32)
key, value = (
    np.array([-200, 0], np.float32).reshape(1, 2, 1, 1),
    np.array([1, 5], np.float32).reshape(1, 2, 1, 1),
)
got = attend(ones, key, value, causal_mask="TopLeft").ravel().tolist()
print("expected [1.0, 5.0]: query 0 may attend to key 0 only")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got[0]) and got[1] == 5 else 1)

"""TVM, relax.op.nn.attention: key heads that are not as many as query heads are read past their end (HEAD-1).

Rank: memory
Impact: with grouped heads, queries attend to keys of other batch entries, and to memory past the end.
Cause: all sizes are compared but the numbers of heads, and keys and values are reshaped to the query heads.
"""

import numpy as np
import tvm
from tvm import relax


def attend(*arrays):
    """Run the operator on arrays of (B, S, H, D)."""
    inputs = [relax.Var(f"x{i}", relax.TensorType(x.shape, str(x.dtype))) for i, x in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("attend", inputs):
        with builder.dataflow():
            found = builder.emit_output(builder.emit(relax.op.nn.attention(*inputs)))
        builder.emit_func_output(found)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
    return machine["attend"](*map(tvm.runtime.tensor, arrays)).numpy()


query, key = np.ones((2, 1, 4, 1), np.float32), np.ones((2, 1, 2, 1), np.float32)
key[1] = 2  # the second batch entry
got = attend(query, key, key)[0].ravel().tolist()
print("expected an error, or for the first batch entry [1.0, 1.0, 1.0, 1.0]")
print(f"got {got}")
raise SystemExit(0 if got == [1.0, 1.0, 2.0, 2.0] else 1)

"""TVM, relax.op.nn.attention: with more queries than keys BottomRight disallows nothing that it has to
(MASK-3).

Rank: difference
Impact: queries see keys that the name of the mode excludes; the documentation shows the same mask.
Documentation: relax.op.nn.attention shows the mask of abs(seq_len - seq_len_kv), in an example too.
Known: https://github.com/apache/tvm/pull/14907 shows the same mask
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


ones, value = np.ones((1, 4, 1, 1), np.float32), np.array([1, 5], np.float32).reshape(1, 2, 1, 1)
got = attend(ones, ones[:, :2], value, causal_mask="BottomRight").ravel().tolist()
print("expected [0.0, 0.0, 1.0, 3.0]: the last query is aligned with the last key")
print(f"got {got}")
raise SystemExit(0 if got == [3.0, 3.0, 3.0, 3.0] else 1)

"""TVM: a scale of NaN and a depth of 0 are accepted (ERR-6) (ERR-5).

Documentation: relax.op.nn.attention says nothing of either.

Found by: errors-scale-nan-float32

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


ones, none = np.ones((1, 2, 1, 1), np.float32), np.ones((1, 2, 1, 0), np.float32)
got = [attend(ones, ones, ones, scale=tvm.tirx.FloatImm("float32", np.nan)), attend(none, none, ones)]
print("expected errors")
print("got", [x.ravel().tolist() for x in got])
raise SystemExit(0 if np.isnan(got[0]).all() else 1)

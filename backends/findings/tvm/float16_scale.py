"""TVM: beside a scale, an output of float16 has the dtype float32 (NUM-1).

Documentation: relax.op.nn.attention says nothing of the dtype of the result; without a scale it is float16.

Found by: scores-given-scale-1-0-1-float16

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


ones = np.ones((1, 2, 1, 2), np.float16)
got = [str(attend(ones, ones, ones, **options).dtype) for options in ({}, {"scale": 0.5})]
print("expected ['float16', 'float16']: without and with a scale")
print(f"got {got}")
raise SystemExit(0 if got == ["float16", "float32"] else 1)

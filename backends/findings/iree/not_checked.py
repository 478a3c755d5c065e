"""IREE: a scale of NaN, and values of depth 0, are accepted (ERR-6) (ERR-5).

Documentation: the operation iree_linalg_ext.attention says nothing of either.

Found by: errors-scale-nan-float32

Known: no thread found
"""

import iree.compiler
import iree.runtime
import numpy as np

MAPS = ["b, i, d", "b, j, d", "b, j, c", "", "b, i, j", "b, i, c"]
LISTED = ", ".join(f"affine_map<(b, i, c, d, j) -> ({x})>" for x in MAPS)


def attend(*arrays, scale="1.0", types=None):
    """Attend with one head: query, key, value and a mask that is added."""
    arrays = [np.array(x, np.float32) for x in arrays]
    q, k, v, m = types or ["tensor<" + "x".join(map(str, (*x.shape, "f32>"))) for x in arrays]
    o = f"tensor<1x{arrays[0].shape[1]}x{arrays[2].shape[2]}xf32>"
    text = f"""func.func @attend(%q: {q}, %k: {k}, %v: {v}, %m: {m}) -> {o} {{
        %s = arith.constant {scale} : f32
        %e = tensor.empty() : {o}
        %r = iree_linalg_ext.attention <{{indexing_maps = [{LISTED}]}}>
            ins(%q, %k, %v, %s, %m : {q}, {k}, {v}, f32, {m}) outs(%e : {o}) {{
            ^bb0(%x: f32): iree_linalg_ext.yield %x : f32 }} -> {o}
        return %r : {o} }}"""
    module = iree.compiler.compile_str(text, target_backends=["llvm-cpu"])
    context = iree.runtime.SystemContext(config=iree.runtime.Config("local-sync"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, module))
    return np.array(context.modules.module["attend"](*arrays).to_host())


one, none = np.ones((1, 1, 1)), np.ones((1, 1, 0))
got = attend(one, one, one, one, scale="0x7FC00000").item()
empty = attend(one, one, none, one).shape
print("expected two errors: the scale is NaN, the values have no features")
print(f"got {got} and the shape {empty}")
raise SystemExit(0 if empty == (1, 1, 0) else 1)

"""IREE, iree_linalg_ext.attention: with a dynamic depth of more than one tile the result is wrong (SCORE-1).

Rank: numbers
Impact: a model compiled for a dynamic depth gets wrong results, without an error.
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


keys, got = [[[1] * 64, [0] * 64]], []
for types in (None, ["tensor<1x1x?xf32>", "tensor<1x2x?xf32>", "tensor<1x2x1xf32>", "tensor<1x1x2xf32>"]):
    arrays = [keys[0][:1]], keys, [[[1], [0]]], [[[0, 0]]]
    got.append(attend(*arrays, scale=f"{1 / 64:f}", types=types).item())
print("expected 0.731 with a static and with a dynamic depth: the scores are 1 and 0")
print("got {:.3f} and {:.3f}".format(*got))
raise SystemExit(0 if abs(got[0] - 0.731) < 1e-3 < abs(got[1] - 0.731) else 1)

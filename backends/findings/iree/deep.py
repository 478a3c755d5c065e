"""IREE, iree_linalg_ext.attention: with a depth above 128 the result is wrong (SCORE-1).

Rank: numbers
Impact: every model with heads deeper than 128 gets wrong results, without an error.
Cause: the features are cut into tiles, and the softmax runs over the tiles too, as if each were a key.
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


got = []
for depth in (128, 136):
    keys = [[[1] * depth, [0] * depth]]
    got.append(attend([keys[0][:1]], keys, [[[1], [0]]], [[[0, 0]]], scale=f"{1 / depth:f}").item())
print("expected 0.731 at depths of 128 and 136: the scores are 1 and 0")
print("got {:.3f} and {:.3f}".format(*got))
raise SystemExit(0 if abs(got[0] - 0.731) < 1e-3 < abs(got[1] - 0.731) else 1)

"""IREE: with a depth above 128 the result is wrong (SCORE-1).

Documentation: the operation iree_linalg_ext.attention says nothing of the depth.

Found by: errors-option-of-every-size-nothing-4+a4-equal.heads-float32

Known: no thread found
"""

import sys

import iree.compiler
import iree.runtime
import numpy as np

SOURCE = """
#q = affine_map<(b, i, c, d, j) -> (b, i, d)>
#k = affine_map<(b, i, c, d, j) -> (b, j, d)>
#v = affine_map<(b, i, c, d, j) -> (b, j, c)>
#s = affine_map<(b, i, c, d, j) -> ()>
#m = affine_map<(b, i, c, d, j) -> (b, i, j)>
#o = affine_map<(b, i, c, d, j) -> (b, i, c)>
func.func @attend(%q: QUERY, %k: KEY, %v: VALUE, %n: tensor<f32>, %m: MASK) -> OUTPUT {
  %s = tensor.extract %n[] : tensor<f32>
  %e = tensor.empty() : OUTPUT
  %found = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #m, #o]}>
      ins(%q, %k, %v, %s, %m : QUERY, KEY, VALUE, f32, MASK) outs(%e : OUTPUT) {
    ^bb0(%x: f32): iree_linalg_ext.yield %x : f32
  } -> OUTPUT
  return %found : OUTPUT
}"""


def attend(query, key, value, mask, scale=1.0, **types):
    """Attend with one head and a mask that is added. The types are those of the arrays if none is given."""
    arrays = [np.array(x, np.float32) for x in (query, key, value, mask)]
    arrays.insert(3, np.array(scale, np.float32))
    text = SOURCE
    shapes = dict(
        zip(("QUERY", "KEY", "VALUE", "MASK"), (arrays[i].shape for i in (0, 1, 2, 4)), strict=True)
    )
    shapes["OUTPUT"] = (1, arrays[0].shape[1], arrays[2].shape[2])
    for name, shape in shapes.items():
        text = text.replace(name, types.get(name) or f"tensor<{'x'.join(map(str, shape))}xf32>")
    module = iree.compiler.compile_str(text, target_backends=["llvm-cpu"])
    context = iree.runtime.SystemContext(config=iree.runtime.Config("local-sync"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, module))
    return np.array(context.modules.module["attend"](*arrays).to_host())


got = []
for depth in (128, 136):
    ones = np.ones((1, 2, depth))
    ones[0, 1] = 0
    values, mask = [[[1.0], [0.0]]], np.zeros((1, 1, 2))
    got.append(round(attend(ones[:, :1], ones, values, mask, scale=1 / depth).item(), 4))
print("expected [0.7311, 0.7311] at depths of 128 and 136: the scores are 1 and 0")
print(f"got {got}")
sys.exit(0 if got[0] == 0.7311 != got[1] else 1)

"""ncnn: inputs that do not fit are not refused (SHAPE-6, HEAD-2).

Documentation: the page operators of the ncnn wiki says nothing of it, and asserts nothing.

Found by: notation-misfit-depth-float32

Known: no thread found
"""

import ncnn
import numpy as np

LINES = ["7767517", "4 4", *(f"Input {name} 0 1 {name}" for name in "qkv"), "SDPA s 3 1 q k v output 6=0.0"]

network = ncnn.Net()
network.load_param_mem("\n".join(LINES) + "\n")
network.load_model_mem(b"")
arrays = {name: np.ones((1, 2, depth), np.float32) for name, depth in (("q", 4), ("k", 3), ("v", 4))}
extractor = network.create_extractor()
for name, array in arrays.items():
    extractor.input(name, ncnn.Mat(array).clone())
status, output = extractor.extract("output")
got = np.array(output).shape if status == 0 else "an error"
print("expected an error: queries of depth 4, keys of depth 3")
print(f"got {got}")
raise SystemExit(0 if got == (1, 2, 4) else 1)

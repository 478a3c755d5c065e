"""ncnn: with a key of NaN, the row is numbers (NUM-11).

Documentation: the page operators of the ncnn wiki says nothing of NaN.

Found by: numerics-nan-group-float32

Known: no thread found
"""

import ncnn
import numpy as np

LINES = ["7767517", "4 4", *(f"Input {name} 0 1 {name}" for name in "qkv"), "SDPA s 3 1 q k v output 6=0.0"]

network = ncnn.Net()
network.load_param_mem("\n".join(LINES) + "\n")
network.load_model_mem(b"")
arrays = {name: np.ones((1, count, 4), np.float32) for name, count in (("q", 1), ("k", 5), ("v", 5))}
arrays["k"][0, 1] = np.nan
extractor = network.create_extractor()
for name, array in arrays.items():
    extractor.input(name, ncnn.Mat(array).clone())
status, output = extractor.extract("output")
got = np.array(output).flatten()[0]
print("expected nan")
print(f"got {got}")
raise SystemExit(0 if np.isfinite(got) else 1)

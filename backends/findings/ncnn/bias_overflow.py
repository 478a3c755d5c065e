"""ncnn: a bias of -inf is added, and a disallowed score of infinity makes the row NaN (MASK-12).

Documentation: the page operators of the ncnn wiki says that the mask is added.

Found by: masking-finite-garbage-bias-and-largest-1-float32

Known: no thread found
"""

import ncnn
import numpy as np

LINES = ["7767517", "5 5", *(f"Input {name} 0 1 {name}" for name in "qkvm"), "SDPA s 4 1 q k v m output 5=1"]

network = ncnn.Net()
network.load_param_mem("\n".join(LINES) + "\n")
network.load_model_mem(b"")
arrays = {name: np.ones((1, count, 4), np.float32) for name, count in (("q", 1), ("k", 2), ("v", 2))}
arrays["k"][0, 1] = np.finfo(np.float32).max
arrays["m"] = np.array([[[0, -np.inf]]], np.float32)
extractor = network.create_extractor()
for name, array in arrays.items():
    extractor.input(name, ncnn.Mat(array).clone())
_, output = extractor.extract("output")
got = np.array(output).flatten()[0]
print("expected 1.0: only key 0 is allowed, and its value is 1")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got) else 1)

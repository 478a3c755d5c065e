"""ncnn: a scale of infinity is accepted (ERR-6).

Documentation: the page operators of the ncnn wiki says nothing of such a scale.

Found by: errors-scale-nan-float32

Known: no thread found
"""

import ncnn
import numpy as np

LINES = ["7767517", "4 4", *(f"Input {name} 0 1 {name}" for name in "qkv"), "SDPA s 3 1 q k v output 6=inf"]

network = ncnn.Net()
network.load_param_mem("\n".join(LINES) + "\n")
network.load_model_mem(b"")
arrays = {name: np.ones((1, 2, 4), np.float32) for name in "qkv"}
extractor = network.create_extractor()
for name, array in arrays.items():
    extractor.input(name, ncnn.Mat(array).clone())
status, output = extractor.extract("output")
got = np.array(output).flatten()[0] if status == 0 else "an error"
print("expected an error: the scale is infinite")
print(f"got {got}")
raise SystemExit(0 if not isinstance(got, str) else 1)

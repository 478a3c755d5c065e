"""ncnn: a scale of 0 is no scale (SCORE-3).

Documentation: the page operators of the ncnn wiki says that 0 is the default of the scale.

Found by: scores-zero-scale-float32

Known: no thread found
"""

import ncnn
import numpy as np

LINES = ["7767517", "4 4", *(f"Input {name} 0 1 {name}" for name in "qkv"), "SDPA s 3 1 q k v output 6=0.0"]

network = ncnn.Net()
network.load_param_mem("\n".join(LINES) + "\n")
network.load_model_mem(b"")
rows = {"q": [[3, 0]], "k": [[3, 0], [0, 0]], "v": [[1, 1], [0, 0]]}
arrays = {name: np.array([rows[name]], np.float32) for name in rows}
extractor = network.create_extractor()
for name, array in arrays.items():
    extractor.input(name, ncnn.Mat(array).clone())
status, output = extractor.extract("output")
got = np.array(output).flatten()[0]
print("expected 0.5, the mean of the values")
print(f"got {got}")
raise SystemExit(0 if got > 0.9 else 1)

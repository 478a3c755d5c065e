"""ONNX Runtime Web, in Node.js on WebAssembly: models of one node, run over the protocol for programs.

The package ``onnxruntime-web`` of npm must be installed in the current folder or in a parent of it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from attnspec.backends.adapters.onnx import onnx_attention
from attnspec.backends.adapters.onnxruntime import DIALECT, OF_ATTENTION, OF_LENGTHS
from attnspec.backends.backend import Backend, for_release
from attnspec.backends.program.program import CALL_LIMIT, Program
from attnspec.backends.user.function import describe

#: A program that runs the model among the arrays of a call on the others.
_PROGRAM = """
import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { env, InferenceSession, Tensor } from "onnxruntime-web";
env.wasm.numThreads = 1;
env.logLevel = "fatal";
const KINDS = {
  bool: Uint8Array, float16: Uint16Array, float32: Float32Array, float64: Float64Array,
  int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array,
};
const operations = { attention: [] }, dtypes = ["float16", "float32", "float64"];
const hello = { protocol: 1, name: "onnxruntime-web", version: env.versions.web, dtypes, operations };
async function run({ folder, want, tensors }) {
  const bytes = (name) => new Uint8Array(readFileSync(`${folder}/${name}.bin`)).buffer;
  const read = (name) => new KINDS[tensors[name].dtype](bytes(name));
  const names = Object.keys(tensors).filter((name) => name !== "model");
  const feeds = names.map((name) => [name, new Tensor(tensors[name].dtype, read(name), tensors[name].shape)]);
  const session = await InferenceSession.create(read("model"));
  try {
    const got = await session.run(Object.fromEntries(feeds));
    return Object.fromEntries(want.map((name, i) => {
      const { data, type, dims } = got[session.outputNames[i]];
      writeFileSync(`${folder}/${name}.bin`, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return [name, { dtype: type, shape: dims }];
    }));
  } finally {
    await session.release();
  }
}
for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line);
  if (call.do === "stop") break;
  let answer = hello;
  if (call.do === "run") {
    try {
      answer = { id: call.id, status: "ok", tensors: await run(call) };
    } catch (error) {
      answer = { id: call.id, status: "refused", message: String(error?.message ?? error) };
    }
  }
  console.log(JSON.stringify(answer));
}
"""


def attention_backend() -> Backend:
    """Run the node Attention of opset 24."""
    name = "onnxruntime-web"
    program = Program(name, ["node", "--input-type=module", "--eval", _PROGRAM], CALL_LIMIT)

    def run(model: ModelProto, inputs: dict[str, NDArray[Any]]) -> list[Any]:
        weights = len(model.graph.output) > 1
        text = np.frombuffer(model.SerializeToString(), np.uint8)
        outputs = program.run("attention", {"model": text, **inputs, "return_weights": weights})
        return list(outputs) if weights else [outputs]

    backend = describe(
        onnx_attention(run, 24),
        name=name,
        dtypes=["float16", "float32", "float64"],
        axes=4,
        bias_dtype="query",
        concurrent=False,
        dialect=DIALECT,
        deviations=(*OF_ATTENTION, OF_LENGTHS),
    )
    own = replace(backend.array_library, name=name, version=program.handshake.version)
    return for_release(replace(backend, array_library=own, versions=">=1.30,<1.31"))

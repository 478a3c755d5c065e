// Attention in JavaScript, to be judged by attnspec over its protocol (conformance/protocol.md):
//     attnspec check --program "node attention.mjs"
// It shows how bfloat16 travels: as words of 16 bits, the upper half of a float32.
import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";

const HELLO = {
  protocol: 1,
  name: "attention.mjs",
  version: "1",
  dtypes: ["bfloat16", "float32", "float64"],
  operations: { attention: ["scale", "softcap", "bias", "mask", "is_causal", "return_weights"] },
};

class Refused extends Error {}

function refuseUnless(fits, message) {
  if (!fits) throw new Refused(message);
}

/** The numbers of a tensor, null where its dtype is none that we compute with. */
function read(path, { dtype, shape }) {
  const bytes = readFileSync(path);
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  const data = {
    bool: () => new Uint8Array(buffer),
    bfloat16: () => new Float32Array(Uint32Array.from(new Uint16Array(buffer), (word) => word << 16).buffer),
    float32: () => new Float32Array(buffer),
    float64: () => new Float64Array(buffer),
  }[dtype]?.() ?? null;
  return { dtype, shape, data };
}

/** To the nearest bfloat16, of two that are as near to the even one. */
function toBfloat16(numbers) {
  const words = new Uint32Array(Float32Array.from(numbers).buffer);
  return Uint16Array.from(words, (word, i) =>
    Number.isNaN(numbers[i]) ? 0x7fc0 : (word + 0x7fff + ((word >>> 16) & 1)) >>> 16);
}

function write(path, dtype, numbers) {
  const round = { bfloat16: toBfloat16, float32: Float32Array.from.bind(Float32Array) }[dtype];
  const array = round ? round(numbers) : Float64Array.from(numbers);
  writeFileSync(path, new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
}

/** For each axis of `full` the step through a tensor that is broadcast to it, trailing axes aligned. */
function steps(name, { shape }, full) {
  refuseUnless(shape.length <= full.length, `${name}: expected no more axes than the scores`);
  let stride = 1;
  return full.map((length, axis) => [length, shape[axis - full.length + shape.length]]).reverse()
    .map(([length, own]) => {
      refuseUnless(own === undefined || own === 1 || own === length, `${name}: expected a shape that fits`);
      const step = own === undefined || own === 1 ? 0 : stride;
      stride *= own ?? 1;
      return step;
    }).reverse();
}

function place(row, j, full, step) {
  let at = j * step.at(-1);
  for (let axis = full.length - 2, rest = row; axis >= 0; rest = Math.floor(rest / full[axis--])) {
    at += (rest % full[axis]) * step[axis];
  }
  return at;
}

function attention({ query, key, value, mask, bias }, { scale, softcap, is_causal: causal }) {
  const { shape, dtype } = query;
  refuseUnless(query.data && dtype !== "bool", "query: expected floating-point numbers");
  for (const [name, tensor] of Object.entries({ key, value, bias })) {
    refuseUnless(!tensor || tensor.dtype === dtype, `${name}: expected the dtype of query`);
  }
  refuseUnless(!mask || mask.dtype === "bool", "mask: expected booleans");
  refuseUnless(shape.length >= 2, "query: expected two axes or more");
  for (const [name, tensor] of Object.entries({ key, value })) {
    const batch = JSON.stringify(tensor.shape.slice(0, -3)) === JSON.stringify(shape.slice(0, -3));
    refuseUnless(tensor.shape.length === shape.length && batch, `${name}: expected the batch axes of query`);
  }
  const [heads = 1, L, D] = shape.length > 2 ? shape.slice(-3) : [1, ...shape];
  const [shared = 1, S] = shape.length > 2 ? key.shape.slice(-3) : [1, ...key.shape];
  const Dv = value.shape.at(-1);
  refuseUnless(D > 0 && key.shape.at(-1) === D, "key, query: expected one depth, which is not 0");
  refuseUnless(Dv > 0 && value.shape.at(-2) === S, "value: expected the positions of key");
  refuseUnless(shape.length < 3 || value.shape.at(-3) === shared, "value: expected the heads of key");
  refuseUnless(shared ? heads % shared === 0 : heads === 0, "key: expected heads that divide those of query");
  refuseUnless(scale == null || Number.isFinite(scale), "scale: expected a finite number");
  refuseUnless(softcap == null || (Number.isFinite(softcap) && softcap > 0), "softcap: expected a positive number");

  const full = [...shape.slice(0, -1), S]; // (*B, Hq, L, S)
  const maskStep = mask && steps("mask", mask, full), biasStep = bias && steps("bias", bias, full);
  const rows = full.slice(0, -1).reduce((product, length) => product * length, 1);
  const output = new Array(rows * Dv).fill(0), weights = new Array(rows * S).fill(0);
  for (let row = 0; row < rows; row++) {
    const i = row % L, head = Math.floor(row / L), group = heads / shared;
    const from = (Math.floor(head / heads) * shared + Math.floor((head % heads) / group)) * S;
    const scores = Array.from({ length: S }, (_, j) => {
      if ((causal && j > i) || (mask && !mask.data[place(row, j, full, maskStep)])) return -Infinity;
      let score = 0;
      for (let d = 0; d < D; d++) score += query.data[row * D + d] * key.data[(from + j) * D + d];
      score *= scale ?? 1 / Math.sqrt(D);
      if (softcap != null) score = softcap * Math.tanh(score / softcap);
      const added = bias ? bias.data[place(row, j, full, biasStep)] : 0;
      return added === -Infinity ? added : score + added;
    });
    const top = scores.reduce((most, score) => (score > most ? score : most), -Infinity);
    const exps = scores.map((score) => (score === -Infinity ? 0 : Math.exp(score - top)));
    const sum = exps.reduce((total, exp) => total + exp, 0);
    for (let j = 0; j < S; j++) {
      if (scores[j] === -Infinity) continue; // deleted, whatever its value holds
      const weight = (weights[row * S + j] = exps[j] / sum);
      for (let d = 0; d < Dv; d++) output[row * Dv + d] += weight * value.data[(from + j) * Dv + d];
    }
  }
  return { output: [[...shape.slice(0, -1), Dv], output], weights: [full, weights] };
}

function answer({ id, folder, options, tensors, want }) {
  try {
    const read_ = Object.entries(tensors).map(([name, tensor]) => [name, read(`${folder}/${name}.bin`, tensor)]);
    const results = attention(Object.fromEntries(read_), options);
    const dtype = tensors.query.dtype, said = {};
    for (const name of want) {
      const [shape, numbers] = results[name];
      write(`${folder}/${name}.bin`, dtype, numbers);
      said[name] = { dtype, shape };
    }
    return { id, status: "ok", tensors: said };
  } catch (error) {
    if (!(error instanceof Refused)) throw error; // a fault of ours: ends in a crash, and is reported as one
    return { id, status: "refused", message: error.message };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.do === "stop") break;
  console.log(JSON.stringify(message.do === "hello" ? HELLO : answer(message)));
}

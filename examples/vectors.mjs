// The golden vectors with a JSON parser alone: an attention in JavaScript held against those of one file.
//     node vectors.mjs "$(attnspec vectors path)/softmax.json"
import { readFileSync } from "node:fs";

const SPELLINGS = { NaN, Infinity: Infinity, "-Infinity": -Infinity };
const KNOWN = new Set(["query", "key", "value", "scale"]);

/** An array of the file as nested arrays of numbers. */
function decode({ shape, data }) {
  const numbers = data.map((x) => SPELLINGS[x] ?? x);
  const nest = (axis, from, size) =>
    axis === shape.length
      ? numbers[from]
      : Array.from({ length: shape[axis] }, (_, i) => nest(axis + 1, from + (i * size) / shape[axis], size / shape[axis]));
  return nest(0, 0, numbers.length);
}

/** Two axes: query (L, D), key (S, D), value (S, Dv). */
function attention({ query, key, value, scale = 1 / Math.sqrt(query[0].length) }) {
  return query.map((q) => {
    const scores = key.map((k) => scale * k.reduce((sum, x, d) => sum + x * q[d], 0));
    const exps = scores.map((score) => Math.exp(score - Math.max(...scores)));
    const total = exps.reduce((sum, x) => sum + x, 0);
    return value[0].map((_, d) => exps.reduce((sum, x, j) => sum + (x / total) * value[j][d], 0));
  });
}

let held = 0;
for (const { id, operation, arguments: given, expected, misuse } of JSON.parse(readFileSync(process.argv[2])).cases) {
  const ours = operation === "attention" && Object.keys(given).every((name) => KNOWN.has(name));
  if (!expected && !misuse) throw new Error(`${id}: expected values, got none`);
  if (!ours || misuse || given.query.shape.length !== 2 || given.query.shape[0] === 0) continue;
  const call = Object.fromEntries(Object.entries(given).map(([name, x]) => [name, x?.data ? decode(x) : SPELLINGS[x] ?? x ?? undefined]));
  const got = attention(call).flat(), want = expected.output.data.map((x) => SPELLINGS[x] ?? x);
  const off = Math.max(...got.map((x, i) => (Object.is(x, want[i]) ? 0 : Math.abs(x - want[i]))));
  console.log(`${id}: off by ${off}`);
  held++;
  if (!(off <= 1e-12 * Math.max(1, ...want.map(Math.abs)))) process.exitCode = 1;
}
console.log(`${held} cases`);

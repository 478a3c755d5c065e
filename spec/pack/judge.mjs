// Judge an implementation of attention by the pack. It needs Node alone.
//     node judge.mjs ./my_kernel.mjs float32
// Each function of the module that has an operation's name takes one object: its arrays { kind, dtype, shape, data } with numbers
// as Float64Array, and its options. It returns an object of outputs in the same form, or null if it lacks an argument.
import { readFileSync } from "node:fs";

const TYPES = { bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  int32: Int32Array, uint32: Uint32Array, float32: Float32Array, float64: Float64Array,
  int64: BigInt64Array, uint64: BigUint64Array, bfloat16: Uint16Array, float16: Uint16Array };
const UNNAMED = "expected an error that names the argument at fault, got another"; // breaks a SHOULD, ERR-12
const BOUNDS = { true: true, false: false };
const single = new Float32Array(1), bits = new Uint32Array(single.buffer);
const widen = {
  bfloat16: (x) => ((bits[0] = x << 16), single[0]),
  float16(x) {
    const exponent = (x >> 10) & 31, fraction = x & 1023, sign = x >> 15 ? -1 : 1;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
  },
};

/** The elements of an array, as doubles. */
function elements(file, dtype, place, size) {
  const Type = TYPES[dtype];
  if (!Type) return null; // complex numbers, which a call that must be rejected has
  const stored = new Type(file.buffer.slice(file.byteOffset + place, file.byteOffset + place + size * Type.BYTES_PER_ELEMENT));
  return Float64Array.from(stored, widen[dtype] ?? Number);
}

/** Yield each case: name, operation, title, dtypes, results, rules, rejection, options, arrays, outputs. */
export function* read(folder = new URL(".", import.meta.url)) {
  let file, item;
  const array = (dtype, place, [, ...shape]) => {
    shape = shape.map(Number);
    return { shape, data: elements(file, dtype, Number(place), shape.reduce((a, b) => a * b, 1)) };
  };
  for (const line of readFileSync(new URL("cases.txt", folder), "utf8").split("\n")) {
    const [word, ...rest] = line.split(" ");
    if (word === "chapter") file = readFileSync(new URL(`${rest[0]}.bin`, folder));
    else if (word === "case") item = { name: rest[0], operation: rest[1], rules: [], catches: [], options: {}, arrays: {}, outputs: {} };
    else if (word === "title") item.title = line.slice(6);
    else if (word === "dtypes" || word === "results") item[word] = rest;
    else if (word === "rule") item.rules.push({ id: rest[0], level: rest[1] });
    else if (word === "catches") item.catches.push(rest[0]);
    else if (word === "rejection") [item.rejection, ...item.atFault] = rest;
    else if (word === "array") item.arrays[rest[0]] = { kind: rest[1], dtype: rest[2], ...array(rest[2], rest[3], rest.slice(4)) };
    else if (word === "output") {
      const { shape, data } = array(rest[3], rest[4], rest.slice(5));
      item.output = item.outputs[rest[0]] = { kind: rest[1], option: rest[2], shape, expected: data, allowed: {} };
    } else if (word === "allowed") item.output.allowed[`${rest[0]} ${rest[1]}`] = elements(file, rest[2], Number(rest[3]), item.output.expected.length);
    else if (word === "flag") item.options[rest[0]] = rest[1] === "1";
    else if (word === "integer" || word === "number") item.options[rest[0]] = Number(rest[1].replace("inf", "Infinity"));
    else if (word === "word") item.options[rest[0]] = rest[1];
    else if (word === "pair") item.options[rest[0]] = rest.slice(1).map((x) => BOUNDS[x] ?? (x === "none" ? null : Number(x)));
    else if (word === "layout") item.layout = true; // strides, which a Float64Array has not
    else if (word === "end") yield item;
  }
}

/** How often each of the places is in each list, and how many entries are -1; infinitely many if one is no place. */
function counts({ shape, data }, size) {
  const length = shape.at(-1), found = new Float64Array((data.length / (length || 1)) * (size + 1));
  Array.from(data, Number).forEach((place, i) => {
    const row = Math.floor(i / length) * (size + 1), known = place >= -1 && place < size;
    found[row + (known && place >= 0 ? place : size)] += known ? 1 : Infinity;
  });
  return { shape: [...shape.slice(0, -1), size + 1], data: found };
}

/** Say what is wrong with an output, or return an empty text. */
export function difference(output, got, key, length) {
  const { expected, shape } = output, allowed = output.allowed[key];
  if (output.kind === "counts" && got.shape.at(-1) !== length) return `expected lists of ${length} keys, got ${got.shape.at(-1)}`;
  if (output.kind === "counts") got = counts(got, shape.at(-1) - 1);
  if (String(got.shape) !== String(shape)) return `expected shape ${shape}, got ${got.shape}`;
  for (let i = 0; i < expected.length; i++) {
    const x = got.data[i], want = expected[i], most = allowed[i];
    const fits = Number.isNaN(most) || x === want || (Number.isFinite(x) && Number.isFinite(want) && Math.abs(x - want) <= most) ||
      (Number.isNaN(x) && (Number.isNaN(want) || (want === Infinity && most === Infinity)));
    if (!fits) return `element ${i}: expected ${want} within ${most}, got ${x}`;
  }
  return "";
}

/** Call a function, and say what is wrong; null if it does not take the call. */
export function judge(item, run, dtype, accuracy = "full") {
  if (!run || item.layout || !item.dtypes.includes(dtype)) return null;
  let got;
  try {
    got = run({ ...item.arrays, ...item.options });
  } catch (error) {
    if (item.rejection === "never") return `raised ${error}`;
    return item.atFault.some((name) => String(error).includes(name)) ? "" : UNNAMED;
  }
  if (got === null) return null;
  if (item.rejection === "must") return `expected an error about ${item.atFault}, got a result`;
  const judged = Object.entries(item.outputs).filter(([name, { option }]) => option === "-" || name in got);
  const said = judged.map(([name, output]) => [name, name in got ? difference(output, got[name], `${dtype} ${accuracy}`, item.options.top_k) : "missing"]);
  return said.filter(([, text]) => text).map((pair) => pair.join(": ")).join("; ");
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const [module, dtype = "float64", accuracy = "full"] = process.argv.slice(2);
  const functions = await import(new URL(module, `file://${process.cwd()}/`)), counts = { pass: 0, fail: 0, "SHOULD not met": 0, "not taken": 0 };
  for (const item of read()) {
    const said = judge(item, functions[item.operation], dtype, accuracy);
    const rule = said === UNNAMED ? { level: "SHOULD", id: "ERR-12" } : item.rules[0];
    const broken = rule.level === "MUST" ? "fail" : "SHOULD not met";
    counts[said === null ? "not taken" : said ? broken : "pass"]++;
    if (said) console.log(rule.level, rule.id, item.name, said, "like", item.catches[0] ?? "");
  }
  console.log(counts);
  process.exitCode = counts.fail || !counts.pass ? 1 : 0;
}

export function attention({ query, key, value, is_causal = false, ...others }) {
  const batch = ({ shape }) => shape.slice(0, -2).join(), [rows, depth] = query.shape.slice(-2);
  if (Object.keys(others).length || batch(query) !== batch(key) || batch(key) !== batch(value)) return null;
  const usual = ({ kind, data }) => kind !== "own" && data.every(Number.isFinite);
  if (![query, key, value].every(usual)) return null;
  const [keys, width] = value.shape.slice(-2);
  if (!depth) throw new Error("query: expected a depth of 1 or more");
  if (depth !== key.shape.at(-1)) throw new Error("key: expected the depth of query");
  if (keys !== key.shape.at(-2)) throw new Error("value: expected as many positions as key");
  if (!width) throw new Error("value: expected a depth of 1 or more");
  const count = query.data.length / depth, data = new Float64Array(count * width);
  for (let i = 0; i < count; i++) {
    const first = Math.floor(i / rows) * keys;
    const scores = Array.from({ length: keys }, (_, j) => {
      if (is_causal && j > (i % rows) + LATE) return -Infinity;
      let dot = 0;
      for (let d = 0; d < depth; d++) dot += query.data[i * depth + d] * key.data[(first + j) * depth + d];
      return dot / Math.sqrt(depth);
    });
    const top = Math.max(...scores), exps = scores.map((x) => (x === -Infinity ? 0 : Math.exp(x - top)));
    const sum = exps.reduce((a, b) => a + b, 0);
    for (let j = 0; j < keys; j++)
      for (let c = 0; exps[j] && c < width; c++)
        data[i * width + c] += (exps[j] / sum) * value.data[(first + j) * width + c];
  }
  return { output: { shape: [...query.shape.slice(0, -1), width], data } };
}

// Attention of one query, and the error that the chapter numerics allows for each element: scale, softcap, bias, mask,
// causality, window and a sink, in float32, float16 and bfloat16. The names are those of the chapter. It has no page:
// try.js shows what it computes, and a test compares it with the golden vectors and their budgets without a browser.
(() => {
  "use strict";
  const u = 2 ** -24;
  const tiny = 2 ** -126;
  // Of each dtype: bits of the significand, smallest normal number, largest number, and whether the class is `cast`.
  const DTYPES = {
    float32: { bits: 24, tiny_s: 2 ** -126, most: (2 - 2 ** -23) * 2 ** 127, cast: 0 },
    float16: { bits: 11, tiny_s: 2 ** -14, most: 65504, cast: 1 },
    bfloat16: { bits: 8, tiny_s: 2 ** -126, most: (2 - 2 ** -7) * 2 ** 127, cast: 1 },
  };
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const range = (number) => Array.from({ length: number }, (_, index) => index);

  // The nearest number of a dtype, ties to even.
  function nearest(x, dtype) {
    const { bits, tiny_s, most } = DTYPES[dtype];
    if (!Number.isFinite(x) || x === 0) return x;
    const exponent = Math.max(Math.floor(Math.log2(Math.abs(x))), Math.log2(tiny_s));
    const unit = 2 ** (exponent - bits + 1);
    const low = Math.floor(x / unit);
    const rest = x / unit - low;
    const rounded = (rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? low + 1 : low) * unit;
    return Math.abs(rounded) > most ? Math.sign(x) * Infinity : rounded;
  }

  function rounded(value, error, unit, least) {
    return value === 0 && error === 0 ? 0 : error + Math.max(unit * (Math.abs(value) + error), least / 2);
  }

  function allows(j, { mask, bias, is_causal, window, position }) {
    if (mask && !mask[j]) return false;
    if (bias && bias[j] === -Infinity) return false;
    if (is_causal && j > position) return false;
    if (!window) return true;
    const [left, right] = window;
    return (left === null || j >= position - left) && (right === null || j <= position + right);
  }

  // Returns scores, weights, output, lse and the allowed errors of output and lse. `position` is that of the query.
  function attend(query, keys, values, options = {}, dtype = "float32") {
    const { softcap = null, bias = null, sink = null } = options;
    const { bits, tiny_s, cast } = DTYPES[dtype];
    const [u_s, least_s, D, Dv] = [2 ** -bits, tiny_s * 2 ** (1 - bits), query.length, values.length ? values[0].length : 0];
    const scale = options.scale ?? 1 / Math.sqrt(D);
    const [exp_error, tanh_error, weight_error, weight_least] = [2 ** -13 * cast, 2 ** -16 * cast, cast * u_s, (cast * least_s) / 2];
    const scored = keys.map((key, j) => {
      const size = Math.abs(scale) * sum(query.map((x, d) => Math.abs(x * key[d])));
      let s = scale * sum(query.map((x, d) => x * key[d]));
      let error = (D + 6) * u * size + (size > 0 ? Math.abs(scale) * (D + 6) * tiny : 0);
      if (softcap !== null) {
        const steepest = 1 / Math.cosh(Math.min(Math.max(Math.abs(s) - error, 0) / softcap, 300)) ** 2;
        const capped = softcap * Math.tanh(s / softcap);
        error = steepest * (error + u * Math.abs(s)) + (6 * u + tanh_error) * Math.abs(capped) + (error > 0 ? tiny : 0);
        s = capped;
      }
      if (bias && bias[j] !== -Infinity) {
        s += bias[j];
        error += u * (Math.abs(s) + error);
      }
      return { s, error, allowed: allows(j, options) };
    });
    const zero = new Array(Dv).fill(0);
    const held = scored.map((one, j) => ({ ...one, j, value: values[j] })).filter((one) => one.allowed);
    if (sink !== null && sink !== -Infinity) held.push({ s: sink, error: 0, j: -1, value: zero });
    const shown = (weights) => scored.map((one, j) => ({ score: one.s, allowed: one.allowed, weight: weights.get(j) || 0 }));
    if (!held.length) return { keys: shown(new Map()), output: zero, lse: -Infinity, allowed: zero, allowed_lse: 0, count: 0 };
    const count = held.length;
    const several = count > 1 ? 1 : 0;
    const top = Math.max(...held.map((one) => one.s));
    const total = sum(held.map((one) => Math.exp(one.s - top)));
    const lse = top + Math.log(total);
    for (const one of held) {
      one.p = Math.exp(one.s - top) / total;
      one.eps = several * Math.expm1(Math.min(one.error + u * (3 * (top - one.s) + 4) + exp_error, 700));
    }
    const gain = sum(held.map(({ p, eps }) => p * eps));
    const rest = sum(held.map(({ p, eps }) => p / (1 + eps)));
    const merging = 2 * u * (Math.abs(top) + 5 * Math.log(count)) * several;
    const single = (exp_error + Math.min(cast * u_s, u * Math.abs(top))) * (1 - several);
    // A score of minus infinity has the weight 0 (NUM-14). Without a finite one, no result is defined.
    const defined = top !== -Infinity;
    // The budget of a row with such a score is that of the other keys, with 0 in place of what is not finite.
    const zeroed = (numbers) => numbers.map((x) => (Number.isFinite(x) ? x : 0));
    const like = defined && held.some((one) => one.s === -Infinity) ? attend(zeroed(query), keys.map(zeroed), values.map(zeroed), { ...options, mask: scored.map((one) => one.allowed && one.s !== -Infinity) }, dtype) : null;
    const common = count * u + 4 * u + merging + single;
    const output = range(Dv).map((c) => sum(held.map(({ p, value }) => p * value[c])));
    const allowed = output.map((o, c) => {
      // An infinite value counts where its weight is a normal number (NUM-13), and NaN in a value always (NUM-12).
      const small = held.some(({ p, value }) => p < tiny_s && Math.abs(value[c]) === Infinity);
      if (!defined || (small && !held.some(({ s, value }) => Number.isNaN(value[c]) || !(s < Infinity)))) return Infinity;
      if (!Number.isFinite(o)) return 0;
      if (like) return like.allowed[c];
      const mean = sum(held.map(({ p, value }) => p * Math.abs(value[c])));
      const away = held.map(({ value }) => Math.abs(value[c] - o));
      const spread = Math.min(sum(held.map(({ p, eps }, i) => p * eps * away[i])) / rest, Math.max(...away));
      const far = sum(held.map(({ p, j }, i) => (j < 0 ? 0 : p * away[i])));
      const rounding = several * weight_error * Math.max(mean, far);
      const flushing = several * (sum(held.map(({ value }) => (tiny + weight_least) * Math.abs(value[c]))) + (mean > 0 ? count * tiny : 0));
      const shared = common + count * u + 4 * u;
      return rounded(o, spread + shared * mean + rounding + flushing, u_s, least_s);
    });
    const of_sum = Math.log1p(gain) + count * u + 4 * u + merging;
    const of_one = sum(held.map(({ p, error }) => p * error)) + exp_error;
    const lse_error = (several ? of_sum : of_one) + u * (3 * Math.abs(lse) + 4 * Math.log(count));
    const weights = new Map(held.map(({ j, p }) => [j, p]));
    const allowed_lse = like ? like.allowed_lse : Number.isFinite(lse) ? rounded(lse, lse_error, u, 2 ** -149) : defined ? 0 : Infinity;
    return { keys: shown(weights), output, lse, allowed, allowed_lse, count };
  }

  // Whether each element is within its allowed error of the exact one, give or take half of its last printed digit.
  function within(row, got, halves = []) {
    return got.length === row.output.length && got.every((x, c) => row.allowed[c] === Infinity || Object.is(x, row.output[c]) || Math.abs(x - row.output[c]) <= row.allowed[c] + (halves[c] || 0));
  }

  // Common mistakes that give the output instead: the rule, and what was done.
  function mistakes(query, keys, values, options, dtype, got) {
    const { mask, bias, is_causal, window, softcap, sink, scale } = options;
    const each = [
      ["SCORE-2", "no scale", { scale: 1 }],
      ["SCORE-3", "the default scale instead of the given one", scale !== undefined && scale !== null && { scale: null }],
      ["MASK-1", "True in the mask means ignore", mask && { mask: mask.map((x) => !x) }],
      ["MASK-1", "the mask has no effect", mask && { mask: null }],
      ["SCORE-4", "the bias has no effect", bias && { bias: null }],
      ["MASK-3", "causality has no effect", is_causal && { is_causal: false }],
      ["MASK-7", "the query is at the last key", (is_causal || window) && { position: keys.length - 1 }],
      ["MASK-7", "the query is at the first key", (is_causal || window) && { position: 0 }],
      ["MASK-8", "the window has no effect", window && { window: null }],
      ["MASK-8", "the left bound of the window is exclusive", window && window[0] > 0 && { window: [window[0] - 1, window[1]] }],
      ["SCORE-5", "the softcap has no effect", softcap && { softcap: null }],
      ["SOFT-5", "the sink has no effect", sink !== undefined && sink !== null && { sink: null }],
    ];
    const found = each.filter(([, , change]) => change && within(attend(query, keys, values, { ...options, ...change }, dtype), got));
    const mean = range(values[0] ? values[0].length : 0).map((c) => sum(values.map((value) => value[c])) / values.length);
    const row = attend(query, keys, values, options, dtype);
    if (!row.count && mean.every((x, c) => Math.abs(x - got[c]) <= 2 ** -6 * (Math.abs(x) + 1))) found.push(["MASK-6", "a query without an allowed key gets the mean of the values", {}]);
    // Elements that should be NaN or infinite and are not, or the other way round.
    const off = range(got.length).filter((c) => row.allowed[c] < Infinity && !Object.is(row.output[c], got[c]) && !(Number.isFinite(row.output[c]) && Number.isFinite(got[c])));
    const attended = row.keys.map((key, j) => ({ ...key, value: values[j] })).filter((key) => key.allowed);
    const some = (test) => off.some((c) => attended.some(({ value }) => test(value[c])));
    if (!off.length) return found.map(([rule, text]) => ({ rule, text }));
    if (!attended.length) found.push(["MASK-6", "a query without an allowed key does not give 0"]);
    else if (attended.some(({ score }) => !(score < Infinity))) found.push(["NUM-11", "a score of NaN or infinity does not make its row NaN"]);
    else if (some(Number.isNaN)) found.push(["NUM-12", "NaN in an attended value does not make its element NaN"]);
    else if (some((x) => Math.abs(x) === Infinity)) found.push(["NUM-13", "infinity in an attended value does not give infinity"]);
    else if (![...keys, ...values].every((numbers) => numbers.every(Number.isFinite))) found.push(["MASK-13", "NaN or infinity at a place that is not attended to reaches the row"]);
    else found.push(["NUM-11", "a row becomes NaN or infinite although its scores are finite"]);
    return found.map(([rule, text]) => ({ rule, text }));
  }

  const api = { attend, within, mistakes, nearest, DTYPES };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  else window.attnspecRow = api;
})();

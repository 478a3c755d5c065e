// The search by name. It has no page: site.js shows what it finds, and a test runs it without a browser.
// Hyphens, underscores and spaces make no difference. A word that no name has is taken as a misspelling.
(() => {
  "use strict";
  const ORDER = ["rule", "term", "question", "page", "symptom", "library", "operation", "argument", "section", "variant", "finding", "case", "entry"];
  const MANY = ["finding", "case", "entry", "section", "variant", "argument"];
  // How much a name of a kind is worth beside one of another kind that has the same words.
  const WORTH = { symptom: 1.25, question: 1.15, rule: 1.15, page: 1, library: 0.8, term: 0.95, operation: 0.9, section: 0.3, argument: 0.6, variant: 0.7, finding: 0.6, case: 0.4, entry: 0.35 };
  const IDLE = new Set("a about all am an and answer any attention are as at be between but by can could do does explain for from get gets give gives has have how i if in into is it its me mean meaning my need needs non not of on only or our out return returned returns s should so some t than that the their them then there this to too use used using vs was way we what when where which while why will with without would you".split(" "));
  // Names of libraries and calls. They say where a reader met something, and little of what it is.
  const PRODUCT = new Set("attn cuda cudnn flash flashattent flashinfer func functional gpu jax kera mlx nn onnx onnxruntim pallas pytorch sdpa splash torch transformer triton vllm xformer".split(" "));
  const CALLS = [[/(scaled[_ ])?dot[_ ]product[_ ]attention/gi, "sdpa"], [/memory[_ ]efficient[_ ]attention/gi, "xformers"]];
  // Words that readers use for the same thing. The first of a line is worth as much as any other.
  const SAME = [
    "kv key keys",
    "seq sequence length lengths seqlen seqlens",
    "cu_seqlens varlen ragged packed packing thd",
    "bfloat16 bf16",
    "float16 fp16 half",
    "float32 fp32 single",
    "float64 fp64 double",
    "float8 fp8 e4m3 e5m2",
    "int8 int4 quantized quantised quantization codes",
    "lse logsumexp",
    "log2 base-2 base2 exp2",
    "gqa mqa grouped groups",
    "heads head",
    "masked mask masking",
    "empty none no zero zeros nothing",
    "fully all entire whole",
    "cache cached past decode decoding",
    "rope rotary",
    "window sliding local swa",
    "softcap cap capping",
    "sink sinks",
    "backward bwd gradient gradients grad grads derivative training vjp autograd",
    "tolerance tolerances atol rtol allclose accuracy precision",
    "batch batched batching",
    "deterministic determinism nondeterministic reproducible bitwise",
    "alibi slope slopes",
    "paged page pages block_table",
    "pad padded padding",
    "support supported supports unsupported refused rejected",
    "compile compiled jit captured",
    "fail fails failing failure failed error errors",
    "missing ignored ignores ignore dropped forgotten silently effect",
    "crash crashes segfault raises error errors exception rejected refuse refused",
    "differ differs difference different diff change changes changed discrepancy discrepancies inconsistent inconsistency match matches mismatch mismatches disagree",
    "right correct wrong incorrect garbage bad gibberish nonsense",
    "first before",
    "range bounds bound out-of-bounds outside",
    "misaligned alignment aligned corner shifted off",
    "strided stride strides transposed contiguous noncontiguous layout",
    "dropout drop",
    "mla latent",
    "topk top-k select selected selection indexer",
    "inf infinity infinite",
    "overflow overflows saturation saturates",
    "bool boolean",
    "int integer integers",
    "dtype dtypes",
    "shape shapes size sizes",
    "different other another",
    "draft drafts drafted speculative tree",
    "scale scaling sm_scale softmax_scale",
    "repeat_kv repeat_interleave repeat",
    "merge merging combine merged",
    "uniform mean average",
    "pytorch torch sdpa",
    "gpu cuda",
    "divisible divisibility multiple",
  ];

  const plain = (text) =>
    text
      .toLowerCase()
      .replace(/[\u2010-\u2015]/g, "-")
      .replace(/[^\p{L}\p{N}+]+/gu, " ")
      .trim();
  const tight = (text) => plain(text).replace(/ /g, "");
  // The stem of a word: endings of the plural and of verbs make no difference.
  const stem = (word) => (word.length > 4 ? word.replace(/ies$/, "y").replace(/(?:([bdgmnprt])\1ing|ing|ed|es|s|e)$/, "$1") : word.length > 3 ? word.replace(/s$/, "") : word);
  const terms = (text) => plain(text).split(" ").filter(Boolean).map(stem);
  // A small number is an error, as in 3e-3.
  const SMALL = [/(?<![\w.])(?:\d+(?:\.\d+)?e-\d+|0?\.00\d+)(?!\w)/gi, "tolerance"];
  const called = (query) => [[/\bdifferences? between\b/i, ""], SMALL, ...CALLS].reduce((text, [call, word]) => text.replace(call, word), query);
  // The words of a query. A name that no page has is read by its humps: LowerTriangularMask.
  const wordsOf = (index, query) =>
    called(query)
      .split(/\s+/)
      .flatMap((word) => (terms(word).every((term) => index.has(term)) ? terms(word) : terms(word.replace(/([a-z]{3})(?=[A-Z][a-z]{2})/g, "$1 "))));
  const ALIKE = new Map();
  for (const line of SAME) {
    const all = line.split(" ").flatMap((word) => (plain(word).includes(" ") ? [tight(word)] : [word])).map(stem);
    for (const word of all) ALIKE.set(word, [...new Set([...(ALIKE.get(word) || []), ...all])]);
  }

  // Data may be a text: JSON, compressed by zlib, in base64.
  async function unpack(data) {
    if (typeof data !== "string") return data;
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  // Names of functions and arguments in a text: cache_seqlens, mx.fast.
  const identifiersOf = (text) => new Set((text.match(/[a-z]\w*(?:[_.][a-z]\w*)+/gi) || []).map(tight));
  // A name that more texts have says little.
  const RARE = 6;

  function prepare(rows) {
    const names = [];
    const identifiers = new Map(); // of each name of a function or an argument, the numbers of names whose text has it
    const phrases = new Map(); // of each name of several words, the numbers of names
    const index = new Map(); // of each stem, the numbers of names with what it is worth there
    for (const [kind, name, title, address, words, text] of rows) {
      const also = words ? words.split("|") : [];
      const place = names.length;
      const shown = plain(`${name} ${title}`);
      names.push({ kind, name, title, address, text, shown: ` ${shown}`, tight: tight(name), last: tight(name.split(/[.:/]/).pop()), also: also.map(tight), aliases: ` ${plain(also.join(" "))}`, size: shown.length });
      const worth = new Map();
      const put = (text_, weight) => terms(text_).forEach((word) => worth.set(word, Math.max(weight, worth.get(word) || 0)));
      // A long text has something of everything.
      put(text || "", text && text.length > 1500 ? 0.15 : 0.35);
      put(kind, 0.35);
      put(title, 0.8);
      put(also.join(" "), 0.9);
      // The number of a rule says nothing of it without its letters.
      put(kind === "rule" ? name.replace(/\d+/g, "") : name, 1);
      for (const key of identifiersOf(text || "")) identifiers.set(key, [...(identifiers.get(key) || []), place]);
      for (const phrase of [name, ...also]) {
        const key = tight(called(phrase));
        if (plain(phrase).includes(" ") || /\d/.test(phrase)) phrases.set(key, [...(phrases.get(key) || []), place]);
      }
      for (const [word, weight] of worth) {
        if (!index.has(word)) index.set(word, []);
        index.get(word).push([place, weight]);
      }
    }
    return { names, index, phrases, identifiers, vocabulary: null };
  }

  // What a whole query, read in several ways, is worth as a name: 0 is the name itself, -1 is no name.
  const rank = (one, readings) => readings.map((asked) => rankOf(one, asked)).reduce((a, b) => (a < 0 || (b >= 0 && b < a) ? b : a), -1);

  function rankOf(one, asked) {
    if (one.tight === asked) return 0;
    if (one.last === asked || one.also.includes(asked)) return 1;
    const few = one.kind !== "entry" && one.kind !== "case";
    return few && asked.length > 2 && (one.tight.startsWith(asked) || one.also.some((word) => word.startsWith(asked))) ? 2 : -1;
  }

  // The stems that a word of a query stands for, with what each is worth. The last word may be unfinished.
  function meanings(index, word, last) {
    const found = new Map([[word, 1]]);
    for (const other of ALIKE.get(word) || []) if (other !== word) found.set(other, 0.8);
    if (word.length > 2 && (last || !index.index.has(word)))
      for (const other of index.index.keys()) if (other.startsWith(word) && !found.has(other)) found.set(other, 0.7);
    return found;
  }

  function hits(index, query) {
    const { names } = index;
    const every = wordsOf(index.index, query);
    const told = every.filter((word) => !IDLE.has(word));
    const words = [...new Set(told.length ? told : every)];
    // Of each name, what each word of the query is worth there.
    const points = new Map();
    const few = words.filter((word) => !PRODUCT.has(word)).length < 1;
    let whole = 0;
    // A word or a phrase that few names have says more.
    const add = (best, much) => {
      const rare = much * Math.log(1 + names.length / (1 + Math.min(best.size, names.length)));
      whole += rare;
      for (const [name, weight] of best) {
        const sum = points.get(name) || [0, 0];
        points.set(name, [sum[0] + rare * weight, sum[1] + rare]);
      }
    };
    words.forEach((word, place) => {
      const best = new Map();
      for (const [other, share] of meanings(index, word, place === words.length - 1))
        for (const [name, weight] of index.index.get(other) || []) best.set(name, Math.max(share * weight, best.get(name) || 0));
      if (!best.size && words.length > 1) return; // a word that no name has says nothing
      add(best, PRODUCT.has(word) && !few ? 0.3 : 1);
    });
    // The text that explains the name of a function or an argument.
    const exact = new Set();
    for (const key of identifiersOf(called(query))) {
      const places = index.identifiers.get(key) || [];
      if (!places.length || places.length > RARE || index.phrases.has(key)) continue;
      add(new Map(places.map((place) => [place, 1])), 1);
      places.forEach((place) => exact.add(place));
    }
    // Words in a row that are a name, as in key_padding_mask.
    const row = plain(called(query)).split(" ");
    for (let start = 0; start < row.length; start++)
      for (let end = start + 2; end <= Math.min(row.length, start + 4); end++) {
        const named = index.phrases.get(row.slice(start, end).join(""));
        const product = row.slice(start, end).filter((word) => PRODUCT.has(stem(word))).length * 2 >= end - start;
        if (named) add(new Map(named.map((name) => [name, 1])), product && !few ? 0.2 : 0.6);
      }
    // Of a question, what it asks for.
    const asked = [tight(query)];
    if (/^\s*what\b/i.test(query)) asked.push(tight(plain(query).split(" ").filter((word) => !IDLE.has(word)).join(" ")));
    const readings = asked.filter(Boolean);
    const found = [];
    names.forEach((one, place) => {
      const how = rank(one, readings);
      const [sum, covered] = points.get(place) || [0, 0];
      const share = whole ? covered / whole : 0;
      if (how < 0 && share < 0.2) return;
      // A question after a reason is answered by a reason.
      const reason = one.kind === "question" && /^\s*why\b/i.test(query) && one.tight.startsWith("why") ? 1.5 : 1;
      // A section is found by its title and its other names rather than by its text, which is long.
      const named = one.kind === "section" && (exact.has(place) || words.filter((word) => one.shown.includes(` ${word}`) || one.aliases.includes(` ${word}`)).length * 2 > words.length);
      const score = how < 0 ? reason * (sum / whole) * Math.sqrt(share) * (named ? 1 : WORTH[one.kind]) * (1 - Math.min(one.size, 400) / 2000) : 0;
      const main = one.tight.startsWith("attention") ? 0 : 1;
      const far = words.every((word) => one.shown.includes(` ${word}`)) ? 0 : 1;
      found.push([how < 0 ? 3 : how, ORDER.indexOf(one.kind), main, far * 1000 + one.name.length, one, score]);
    });
    found.sort((a, b) => a[0] - b[0] || b[5] - a[5] || a[1] - b[1] || a[2] - b[2] || a[3] - b[3] || (a[4].name < b[4].name ? -1 : 1));
    // An argument that several operations have is listed once: that of the first, which is attention.
    const seen = new Set();
    return found.filter(([how, , , , one]) => {
      const key = one.kind === "argument" && how ? one.last : one.tight + one.kind;
      return !seen.has(key) && seen.add(key);
    });
  }

  // How many letters differ, up to a limit.
  function distance(a, b, limit) {
    if (Math.abs(a.length - b.length) > limit) return limit + 1;
    let before = [];
    let row = Array.from({ length: b.length + 1 }, (_, index) => index);
    for (let i = 1; i <= a.length; i++) {
      const next = [i];
      for (let j = 1; j <= b.length; j++) {
        next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) next[j] = Math.min(next[j], before[j - 2] + 1);
      }
      before = row;
      row = next;
    }
    return row[b.length];
  }

  // The most frequent word that has the letters of another one in another order.
  const sorted = (word) => [...word].sort().join("");
  const transposed = (index, word) => index.vocabulary.find((one) => one.length === word.length && one !== word && sorted(one) === sorted(word));

  function readVocabulary(index) {
    if (!index.vocabulary) {
      const count = new Map();
      for (const one of index.names) for (const word of `${one.shown} ${one.also.join(" ")}`.split(" ")) if (word.length > 2) count.set(word, (count.get(word) || 0) + 1);
      index.vocabulary = [...count].sort((a, b) => b[1] - a[1]).map(([word]) => word);
      index.every = new Set(index.names.flatMap((one) => `${one.shown} ${one.aliases} ${plain(one.text || "")}`.split(" ")));
    }
  }

  // A word of four letters or more that occurs nowhere, though its stem may: "maks" is not "make".
  const swapped = (index, word) => word.length > 3 && !index.every.has(word) && !ALIKE.has(stem(word)) && transposed(index, word);

  function corrected(index, query) {
    const known = new Set(index.vocabulary);
    const words = plain(query).split(" ");
    return words
      .map((word) => {
        if (word.length < 3 || known.has(word) || index.every.has(word)) return word;
        const other = transposed(index, word);
        if (other) return other;
        const limit = word.length < 8 || words.length > 3 ? 1 : 2;
        for (let most = 1; most <= limit; most++) {
          const near = index.vocabulary.find((one) => distance(word, one, most) <= most);
          if (near) return near;
        }
        return word;
      })
      .join(" ");
  }

  // An id that no rule has: with the letters of rules, or in capitals.
  function absentId(index, query) {
    const [id, letters] = /^([a-z]{2,})-\d+$/i.exec(query.trim()) || [];
    const ids = index.names.filter((one) => one.kind === "rule").map((one) => one.name.toLowerCase());
    if (!id || ids.includes(id.toLowerCase())) return "";
    return letters === letters.toUpperCase() || ids.some((one) => one.startsWith(`${letters.toLowerCase()}-`)) ? letters : "";
  }

  // Returns the names found, how the query was read if it was misspelt, and whether it is the id of no rule.
  function search(index, query, most) {
    if (plain(query).length < 2) return { found: [], meant: "" };
    const letters = absentId(index, query);
    if (letters) return { ...search(index, letters, most), meant: "", absent: query.trim().toUpperCase() };
    let meant = "";
    let all = hits(index, query);
    // A word that no name has may be a misspelling.
    readVocabulary(index);
    const strange = plain(query).split(" ").some((word) => swapped(index, word)) || terms(query).some((word) => word.length > 2 && !IDLE.has(word) && !ALIKE.has(word) && meanings(index, word, true).size === 1 && !index.index.has(word));
    if (!all.length || strange) {
      meant = corrected(index, query);
      const others = meant === plain(query) ? [] : hits(index, meant);
      if (others.length && (!all.length || all[0][0] === 3)) all = others;
      else meant = "";
    }
    // What is worth far less than the best is left out, and so is much beside a name that was typed whole.
    const best = Math.max(0, ...all.map((hit) => hit[5]));
    const least = Math.max(0.3 * best, all.length && all[0][0] < 2 ? 0.45 : 0);
    all = all.filter((hit) => hit[0] < 3 || hit[5] >= least);
    // Of kinds that have many names, a few come first.
    const count = new Map();
    const first = [];
    const later = [];
    for (const hit of all) {
      const kind = hit[4].kind;
      count.set(kind, (count.get(kind) || 0) + 1);
      (hit[0] > 1 && MANY.includes(kind) && count.get(kind) > 3 ? later : first).push(hit[4]);
    }
    return { found: [...first, ...later].slice(0, most), meant };
  }

  const api = { prepare, search, plain, unpack };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  else window.attnspecSearch = api;
})();

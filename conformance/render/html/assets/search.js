// The search by name. It has no page: site.js shows what it finds, and a test runs it without a browser.
// Hyphens, underscores and spaces make no difference. A word that no name has is taken as a misspelling.
(() => {
  "use strict";
  const ORDER = ["rule", "term", "question", "page", "library", "operation", "argument", "section", "variant", "finding", "case", "entry"];
  const MANY = ["finding", "case", "entry", "section", "variant", "argument"];
  const IDLE = new Set("a an and are at by can do does for how i in is it my of on or the to what when which with".split(" "));

  const plain = (text) =>
    text
      .toLowerCase()
      .replace(/[\u2010-\u2015]/g, "-")
      .replace(/[^\p{L}\p{N}+]+/gu, " ")
      .trim();
  const tight = (text) => plain(text).replace(/ /g, "");

  function prepare(rows) {
    const names = rows.map(([kind, name, title, address, words, text]) => {
      const also = words ? words.split("|") : [];
      const head = plain(`${name} ${title} ${also.join(" ")}`);
      return {
        kind,
        name,
        title,
        address,
        text,
        tight: tight(name),
        last: tight(name.split(/[.:/]/).pop()),
        also: also.map(tight),
        shown: ` ${plain(`${name} ${title}`)}`,
        head: ` ${head}`,
        all: ` ${head} ${kind} ${plain(text)}`,
      };
    });
    return { names, vocabulary: null };
  }

  function rank(one, asked, words) {
    if (one.tight === asked) return 0;
    if (one.last === asked || one.also.includes(asked)) return 1;
    const few = one.kind !== "entry" && one.kind !== "case";
    if (few && asked.length > 2 && (one.tight.startsWith(asked) || one.also.some((word) => word.startsWith(asked)))) return 2;
    if (words.every((word) => one.head.includes(` ${word}`))) return 3;
    if (words.every((word) => one.all.includes(` ${word}`))) return 4;
    return words.every((word) => word.length > 3 && one.all.includes(word)) ? 5 : -1;
  }

  function hits(names, query) {
    const every = plain(query).split(" ");
    const told = every.filter((word) => !IDLE.has(word));
    const words = told.length ? told : every;
    const found = [];
    for (const one of names) {
      const how = rank(one, tight(query), words);
      const far = words.every((word) => one.shown.includes(` ${word}`)) ? 0 : 1;
      const main = one.tight.startsWith("attention") ? 0 : 1;
      if (how >= 0) found.push([how, ORDER.indexOf(one.kind), main, far * 1000 + one.name.length, one]);
    }
    found.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || a[3] - b[3] || (a[4].name < b[4].name ? -1 : 1));
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

  function corrected(index, query) {
    if (!index.vocabulary) {
      const count = new Map();
      for (const one of index.names) for (const word of one.head.split(" ")) if (word.length > 2) count.set(word, (count.get(word) || 0) + 1);
      index.vocabulary = [...count].sort((a, b) => b[1] - a[1]).map(([word]) => word);
    }
    const known = new Set(index.vocabulary);
    return plain(query)
      .split(" ")
      .map((word) => {
        if (word.length < 3 || known.has(word)) return word;
        const sorted = (text) => [...text].sort().join("");
        const swapped = index.vocabulary.find((one) => one.length === word.length && sorted(one) === sorted(word));
        if (swapped) return swapped;
        const limit = word.length < 8 ? 1 : 2;
        for (let most = 1; most <= limit; most++) {
          const near = index.vocabulary.find((one) => distance(word, one, most) <= most);
          if (near) return near;
        }
        return word;
      })
      .join(" ");
  }

  // Returns the names found, and how the query was read if it was misspelt.
  function search(index, query, most) {
    if (plain(query).length < 2) return { found: [], meant: "" };
    let meant = "";
    let all = hits(index.names, query);
    if (!all.length) {
      meant = corrected(index, query);
      all = meant === plain(query) ? [] : hits(index.names, meant);
      if (!all.length) meant = "";
    }
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

  const api = { prepare, search, plain };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  else window.attnspecSearch = api;
})();

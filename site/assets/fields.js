// Reads the fields of the page that judges one row. An error names the field, what it got and what was expected.
(() => {
  "use strict";
  const node = typeof module !== "undefined" && module.exports;
  const { nearest, DTYPES } = node ? require("./row.js") : window.attnspecRow;

  function number(word, name) {
    const text = word.toLowerCase().replace(/^([+-]?)inf(inity)?$/, "$1Infinity");
    const x = Number(text);
    if (word === "" || (Number.isNaN(x) && !/^[+-]?nan$/.test(text))) throw new Error(`${name}: expected numbers, got “${word}”${/^[-+]?\d*,\d+$/.test(text) ? "; write a decimal point" : ""}`);
    return x;
  }

  // Half of the last digit of a printed number: 0.00005 of 1.6667. A number without digits after the point is taken as exact.
  function half(word) {
    const [, digits, power] = /^[+-]?\d*\.(\d+)(?:e([+-]?\d+))?$/i.exec(word) || [];
    return digits ? 0.5 * 10 ** (Number(power || 0) - digits.length) : 0;
  }

  // The words of a line, without the brackets around them.
  const words = (line) => line.replace(/[[\](){}]/g, " ").split(/[\s,;]+/).filter(Boolean);
  // Where blanks or semicolons come between numbers, a comma inside of one is a decimal comma: 0,5 1,2.
  function row(line, name) {
    const [comma] = (/\d[\s;]+[-+.\d]/.test(line) && /[-+\d]*\d,\d+/.exec(line)) || [];
    if (comma) throw new Error(`${name}: expected a decimal point, got “${comma}”; a comma stands between two numbers`);
    return words(line).map((word) => number(word, name));
  }

  function truth(word) {
    if (/^(true|t|1|1\.0*)$/i.test(word)) return true;
    if (/^(false|f|0|0\.0*)$/i.test(word)) return false;
    throw new Error(`mask: expected 1 or 0 for each key, got “${word}”; put numbers that are added to the scores, such as -inf, into the field bias (MASK-2)`);
  }

  function bound(word) {
    if (/^(none)?$/i.test(word)) return null;
    const x = number(word, "window");
    if (x < 0) throw new Error(`window: expected bounds of 0 or more, got ${x}; a negative bound is rejected (ERR-7), and an open side is left blank or None`);
    if (!Number.isInteger(x)) throw new Error(`window: expected whole numbers, got ${x}`);
    return x;
  }

  // Returns the call of a row. `field` gives the text of a field by its name.
  function read(field, is_causal) {
    // What was typed, without the names and settings that libraries print: tensor([1.], dtype=torch.bfloat16).
    const text = (name) =>
      field(name)
        .replace(/,?\s*\b(?:dtype|device|requires_grad|grad_fn|size)=[^,\])]*/gi, "")
        .replace(/(?:\b\w+\.)?\b(?:tensor|array)\b/gi, " ")
        .trim();
    const optional = (name) => (text(name) === "" ? null : number(text(name), name));
    // Each bracket that closes ends a row; without brackets, each line does.
    const rows = (name) => text(name).split(text(name).includes("[") ? "]" : "\n").map((line) => row(line, name)).filter((line) => line.length);
    const dtype = text("dtype");
    const round = (numbers, name) =>
      numbers.map((x) => {
        const near = nearest(x, dtype);
        if (Number.isFinite(x) && !Number.isFinite(near)) throw new Error(`${name}: expected numbers that ${dtype} holds, up to ${DTYPES[dtype].most}, got ${x}; type inf if it became infinite`);
        return near;
      });
    const query = round(row(text("query"), "query"), "query");
    const keys = rows("keys").map((line) => round(line, "keys"));
    const values = rows("values").map((line) => round(line, "values"));
    const got = row(text("output"), "output");
    const halves = words(text("output")).map(half);
    if (!query.length) throw new Error("query: expected a row of numbers, got none");
    keys.forEach((key, j) => {
      if (key.length !== query.length) throw new Error(`keys: expected depth ${query.length} as in query, got ${key.length} in row ${j}`);
    });
    if (values.length !== keys.length) throw new Error(`values: expected ${keys.length} rows as in keys, got ${values.length}`);
    values.forEach((value, j) => {
      if (value.length !== values[0].length) throw new Error(`values: expected depth ${values[0].length}, got ${value.length} in row ${j}`);
    });
    if (values.length && got.length && got.length !== values[0].length) throw new Error(`output: expected depth ${values[0].length} as in values, got ${got.length}`);
    const along = (name, line) => {
      if (line.length !== keys.length) throw new Error(`${name}: expected ${keys.length} entries, one for each key, got ${line.length}`);
      return line;
    };
    // A blank beside a comma is an open side.
    const sides = text("window").replace(/[()[\]]/g, " ").trim();
    const bounds = (sides.includes(",") ? sides.split(",") : words(sides)).map((word) => bound(word.trim()));
    if (![0, 2].includes(bounds.length)) throw new Error(`window: expected two bounds, left and right, got ${bounds.length}`);
    const softcap = optional("softcap");
    if (softcap !== null && !(softcap > 0)) throw new Error(`softcap: expected a positive number, got ${softcap}`);
    const position = optional("position");
    if (position === null && (is_causal || bounds.length)) throw new Error(`position: expected the position of the query, with causal or a window, got none; ${keys.length - 1} is that of the last key, and in a call it is the row plus query_offset (MASK-7)`);
    return {
      dtype, query, keys, values, got, halves,
      options: {
        scale: optional("scale"),
        softcap,
        bias: text("bias") ? round(along("bias", row(text("bias"), "bias")), "bias") : null,
        mask: text("mask") ? along("mask", words(text("mask")).map(truth)) : null,
        is_causal,
        position: position ?? 0,
        window: bounds.length ? bounds : null,
        sink: optional("sink"),
      },
    };
  }

  if (node) module.exports = { read };
  else window.attnspecFields = { read };
})();

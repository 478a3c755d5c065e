// The page that judges one row: reads the numbers of its form, and shows what row.js computes. Nothing is sent.
(() => {
  "use strict";
  const form = document.getElementById("try");
  if (!form) return;
  const { attend, within, mistakes, nearest } = window.attnspecRow;
  const result = document.getElementById("try-result");
  // What was typed, without the names and settings that libraries print: tensor([1.], dtype=torch.bfloat16).
  const text = (name) =>
    form.elements[name].value
      .replace(/,?\s*\b(?:dtype|device|requires_grad|grad_fn|size)=[^,\])]*/gi, "")
      .replace(/(?:\b\w+\.)?\b(?:tensor|array)\b/gi, " ")
      .trim();
  const short = (x) => (Number.isFinite(x) ? String(Number(x.toPrecision(9))) : String(x));

  function number(word, name) {
    const plain = word.toLowerCase().replace(/^([+-]?)inf(inity)?$/, "$1Infinity");
    const x = Number(plain);
    const said = name === "output" && /^[+-]?nan$/.test(plain);
    if (word === "" || (Number.isNaN(x) && !said)) throw new Error(`${name}: expected numbers, got “${word}”`);
    return x;
  }

  // The numbers of a line, without the brackets around them.
  function row(line, name) {
    return line.replace(/[[\](){}]/g, " ").split(/[\s,;]+/).filter(Boolean).map((word) => number(word, name));
  }

  const optional = (name) => (text(name) === "" ? null : number(text(name), name));
  // Each bracket that closes ends a row; without brackets, each line does.
  const rows = (name) => text(name).split(text(name).includes("[") ? "]" : "\n").map((line) => row(line, name)).filter((line) => line.length);

  function read() {
    const dtype = text("dtype");
    const round = (numbers, name) =>
      numbers.map((x) => {
        if (!Number.isFinite(x)) throw new Error(`${name}: expected finite numbers, got ${x}; NUM-11 to NUM-14 are about others`);
        return nearest(x, dtype);
      });
    const query = round(row(text("query"), "query"), "query");
    const keys = rows("keys").map((line) => round(line, "keys"));
    const values = rows("values").map((line) => round(line, "values"));
    const got = row(text("output"), "output");
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
    const bounds = text("window").split(/[\s,]+/).filter(Boolean).map((word) => (/^none$/i.test(word) ? null : number(word, "window")));
    if (![0, 2].includes(bounds.length)) throw new Error(`window: expected two bounds, left and right, got ${bounds.length}`);
    const softcap = optional("softcap");
    if (softcap !== null && !(softcap > 0)) throw new Error(`softcap: expected a positive number, got ${softcap}`);
    return {
      dtype, query, keys, values, got,
      options: {
        scale: optional("scale"),
        softcap,
        bias: text("bias") ? along("bias", row(text("bias"), "bias")).map((x) => nearest(x, dtype)) : null,
        mask: text("mask") ? along("mask", row(text("mask").replace(/true|t\b/gi, "1").replace(/false|f\b|\./gi, "0"), "mask")).map(Boolean) : null,
        is_causal: form.elements.is_causal.checked,
        position: optional("position") ?? 0,
        window: bounds.length ? bounds : null,
        sink: optional("sink"),
      },
    };
  }

  function table(heads, lines) {
    const part = document.createElement("table");
    part.className = "data stack";
    const add = (section, cells, tag) => {
      const line = section.insertRow();
      cells.forEach((content, place) => {
        const cell = document.createElement(tag);
        cell.textContent = content;
        // On a narrow screen, each cell is a line that begins with its head.
        cell.dataset.label = heads[place];
        line.append(cell);
      });
    };
    add(part.createTHead(), heads, "th");
    const body = part.createTBody();
    lines.forEach((line) => add(body, line, "td"));
    return part;
  }

  function said(content, kind = "p") {
    const part = document.createElement(kind);
    part.textContent = content;
    return part;
  }

  function judge() {
    const { dtype, query, keys, values, got, options } = read();
    const exact = attend(query, keys, values, options, dtype);
    const parts = [];
    if (got.length) {
      const good = within(exact, got);
      const verdict = said(good ? `✓ Within the allowed error of ${dtype} in each element` : `✗ Off by more than the allowed error of ${dtype}`);
      verdict.className = "verdict";
      parts.push(verdict);
      if (!good)
        for (const { rule, text: what } of mistakes(query, keys, values, options, dtype, got)) {
          const line = said(`It is what one gets if ${what}: `);
          const link = document.createElement("a");
          link.href = `rules/${rule}.html`;
          link.textContent = rule;
          line.append(link);
          parts.push(line);
        }
    }
    const lines = exact.output.map((o, c) => {
      const off = Object.is(got[c], o) ? 0 : Math.abs(got[c] - o);
      const share = off === 0 ? "0" : !Number.isFinite(off) ? "not finite" : exact.allowed[c] === 0 ? "nothing may be off" : (off / exact.allowed[c]).toPrecision(3);
      return [c, short(o), ...(got.length ? [short(got[c]), off.toPrecision(3)] : []), exact.allowed[c].toPrecision(3), ...(got.length ? [share] : [])];
    });
    const heads = got.length ? ["element", "exact", "yours", "off by", "allowed error", "share of it"] : ["element", "exact", "allowed error"];
    parts.push(table(heads, lines));
    parts.push(said(`lse ${short(exact.lse)}, allowed error ${exact.allowed_lse.toPrecision(3)}`));
    parts.push(said("Keys", "h3"), table(["key", "allowed", "score", "weight"], exact.keys.map((key, j) => [j, key.allowed ? "yes" : "no", short(key.score), short(key.weight)])));
    result.replaceChildren(...parts);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      judge();
    } catch (error) {
      const part = said(error.message);
      part.className = "note";
      result.replaceChildren(part);
    }
  });
  judge();
})();

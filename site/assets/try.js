// The page that judges one row: shows what row.js computes of what fields.js reads. Nothing is sent.
(() => {
  "use strict";
  const form = document.getElementById("try");
  if (!form) return;
  const { attend, within, mistakes } = window.attnspecRow;
  const { read } = window.attnspecFields;
  const result = document.getElementById("try-result");
  const short = (x) => (Number.isFinite(x) ? String(Number(x.toPrecision(9))) : String(x));

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
    const { dtype, query, keys, values, got, halves, options } = read((name) => form.elements[name].value, form.elements.is_causal.checked);
    const exact = attend(query, keys, values, options, dtype);
    const parts = [];
    if (got.length) {
      const good = within(exact, got);
      const few = !good && within(exact, got, halves);
      const off = few ? "? Too few digits to tell: print more of them, with .tolist()" : `✗ Off by more than the allowed error of ${dtype}`;
      const verdict = said(good ? `✓ Within the allowed error of ${dtype} in each element` : off);
      verdict.className = "verdict";
      parts.push(verdict);
      if (good) parts.push(said("One row is weak evidence: a mistake may show only on peaked rows, at other lengths or with other options. The suite draws such calls."));
      if (!good && !few)
        for (const { rule, text: what } of mistakes(query, keys, values, options, dtype, got)) {
          const line = said(`It is what one gets if ${what}: `);
          const link = document.createElement("a");
          link.href = `rules/${rule}.html`;
          link.textContent = rule;
          line.append(link);
          parts.push(line);
        }
    }
    const limit = (error) => (error === Infinity ? "any: not defined" : error.toPrecision(3));
    const lines = exact.output.map((o, c) => {
      const off = Object.is(got[c], o) || exact.allowed[c] === Infinity ? 0 : Math.abs(got[c] - o);
      const share = off === 0 ? "0" : !Number.isFinite(off) ? "not finite" : exact.allowed[c] === 0 ? "nothing may be off" : (off / exact.allowed[c]).toPrecision(3);
      return [c, short(o), ...(got.length ? [short(got[c]), off.toPrecision(3)] : []), limit(exact.allowed[c]), ...(got.length ? [share] : [])];
    });
    const heads = got.length ? ["element", "exact", "yours", "off by", "allowed error", "share of it"] : ["element", "exact", "allowed error"];
    parts.push(table(heads, lines));
    parts.push(said(`lse ${short(exact.lse)}, allowed error ${limit(exact.allowed_lse)}`));
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

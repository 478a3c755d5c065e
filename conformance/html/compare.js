// Compares two runs by level, rule and case. One of them may be a file that is dropped on the page.
"use strict";

(async () => {
  const { esc, at, plain, detail } = attnspec;
  const matrix = await attnspec.load("matrix");
  const MARK = Object.fromEntries(matrix.marks.map((mark) => [mark[0], mark]));
  const NAME = { ...Object.fromEntries(matrix.marks.map((mark) => [mark[0], mark[2]])), e: "error", "-": "not run", ".": "no such case" };
  const form = document.getElementById("chosen");
  const box = document.getElementById("comparison");
  const count = document.getElementById("count");
  const MOST = 300;
  let own = [];
  let names = null;
  let state = attnspec.readState();
  let sides = [];

  const known = () => [...own, ...matrix.columns];
  const keyOf = (column) => column.slug || `file:${own.indexOf(column)}`;
  const labelOf = (column) =>
    column.file ? `${column.file}: ${column.backend} ${column.version}` : `${column.label} ${column.version}, ${column.date}`;

  function find(key) {
    return known().find((column) => keyOf(column) === key) || matrix.columns.find((column) => column.backend === key && column.newest);
  }

  function side(name, label) {
    const options = known().map((column) => {
      const key = keyOf(column);
      return `<option value="${esc(key)}"${key === state[name] ? " selected" : ""}>${esc(labelOf(column))}</option>`;
    });
    return `<label>${label}<select name="${name}"><option value="">choose a run</option>${options.join("")}</select></label>`;
  }

  function drawForm() {
    form.innerHTML = `${side("left", "First run")}${side("right", "Second run")}
<label class="check"><input type="checkbox" name="every" value="1"${state.every ? " checked" : ""}> every rule</label>
<label class="file">Your results file<input type="file" name="file" accept=".jsonl,.gz"></label>`;
    form.hidden = false;
  }

  // The letters and rules of the cases of a column, by name.
  async function casesOf(column) {
    if (column.file) return column.data.cases;
    const [data] = await Promise.all([attnspec.load(column.slug), allNames()]);
    const { letters, about } = attnspec.casesOf(data);
    const found = new Map();
    letters.forEach((letter, index) => {
      if (letter !== ".") found.set(names[index], [letter, about.get(index) || ""]);
    });
    return found;
  }

  async function allNames() {
    names = names || (await attnspec.caseNames(matrix.parts));
    return names;
  }

  // Cases of both runs with another letter, by the rule that they are about.
  function differing(left, right) {
    const found = new Map();
    let only = 0;
    for (const [name, [letter, rule]] of left) {
      const other = right.get(name);
      if (!other) only += 1;
      else if (other[0] !== letter) {
        const of = other[1] || rule;
        if (!found.has(of)) found.set(of, []);
        found.get(of).push([name, letter, other[0]]);
      }
    }
    for (const name of right.keys()) if (!left.has(name)) only += 1;
    return { found, only };
  }

  function mark(letter, key, number) {
    return `<td class="c ${letter}"><button type="button" data-open="${esc(key)}" data-side="${number}"><span class="k ${letter}" aria-hidden="true">${MARK[letter][1]}</span> ${esc(MARK[letter][2])}</button></td>`;
  }

  function cases(list) {
    if (!list) return "";
    const items = list.slice(0, MOST).map(([name, a, b]) => `<li><code>${esc(name)}</code>: ${NAME[a]} → ${NAME[b]}</li>`);
    const more = list.length > MOST ? `<li>and ${list.length - MOST} more</li>` : "";
    return `<details><summary>${list.length} case${list.length === 1 ? "" : "s"}</summary><ul>${items.join("")}${more}</ul></details>`;
  }

  async function draw() {
    const [left, right] = [find(state.left), find(state.right)];
    sides = [left, right];
    box.innerHTML = "";
    if (!left && !right) {
      count.textContent = "";
      return;
    }
    if (!left || !right) {
      count.textContent = "Choose a second run.";
      if (!(left || right).file) return;
    }
    const both = left && right;
    const shown = both ? [left, right] : [left || right];
    const { found, only } = both ? differing(...(await Promise.all([casesOf(left), casesOf(right)]))) : { found: new Map(), only: 0 };
    // Of one run alone, what does not hold is shown; of two, what differs.
    const same = (letters) => !state.every && (both ? letters[0] === letters[1] : "pun".includes(letters[0]));
    const levels = matrix.levels
      .map((level, index) => [level, shown.map((column) => column.levels[index])])
      .filter(([, letters]) => !same(letters))
      .map(([level, letters]) => `<tr><th scope="row">level ${level.name}</th>${letters.map((letter, n) => levelCell(letter, level.name, shown[n])).join("")}${both ? "<td></td>" : ""}</tr>`);
    const rules = matrix.rules
      .map((rule, index) => [rule, shown.map((column) => column.letters[index])])
      .filter(([rule, letters]) => !same(letters) || found.has(rule[0]))
      .map(([rule, letters]) => `<tr id="${rule[0]}"><th scope="row"><a href="${esc(at(rule[4]))}">${rule[0]}</a> ${esc(plain(rule[3]))}</th>${letters.map((letter, n) => mark(letter, rule[0], known().indexOf(shown[n]))).join("")}${both ? `<td>${cases(found.get(rule[0]))}</td>` : ""}</tr>`);
    const heads = shown.map((column) => `<th scope="col">${esc(labelOf(column))}${column.headline && column.file ? `<br><small>${esc(column.headline)}</small>` : ""}</th>`);
    const total = [...found.values()].reduce((n, list) => n + list.length, 0);
    if (both) {
      count.textContent = `${levels.length} levels and ${rules.length} rules ${state.every ? "in all" : "with a difference"}; ${total} cases have another verdict` +
        (only ? `; ${only} cases are in one of the runs only` : "");
    } else count.textContent = `${labelOf(shown[0])}: ${rules.length} rules ${state.every ? "in all" : "do not fully pass"}. Choose a second run to compare it with.`;
    box.innerHTML = `<div class="wide" tabindex="0" role="region" aria-label="Comparison"><table class="plain comparison"><thead><tr><th scope="col">rule</th>${heads.join("")}${both ? '<th scope="col">cases with another verdict</th>' : ""}</tr></thead><tbody>${levels.join("")}${rules.join("")}</tbody></table></div>`;
    document.body.dataset.shown = `${state.left || ""}|${state.right || ""}`;
  }

  function levelCell(letter, name, column) {
    const text = letter === "p" ? "reached" : letter === "n" ? "not determined" : "not reached";
    return `<td class="c ${letter}"><button type="button" data-open="level.${name}" data-side="${known().indexOf(column)}"><span class="k ${letter}" aria-hidden="true">${MARK[letter][1]}</span> ${text}</button></td>`;
  }

  async function open(button) {
    const column = known()[Number(button.dataset.side)];
    const data = column.file ? column.data : await attnspec.load(column.slug);
    const key = button.dataset.open;
    const subtitle = esc(labelOf(column));
    const closed = () => button.focus();
    if (key.startsWith("level.")) {
      const name = key.slice(6);
      const letter = column.levels[matrix.levels.findIndex((one) => one.name === name)];
      const said = letter === "p" ? ["reached", "every rule of the level holds"] : ["not reached", "see what it lacks"];
      const content = detail.lacks(data.levels[name], matrix.rules);
      detail.show({ title: `Level ${name}`, address: "", subtitle, mark: [letter, MARK[letter][1], ...said], content }, closed);
      return;
    }
    const index = matrix.rules.findIndex((rule) => rule[0] === key);
    const rule = matrix.rules[index];
    const content = detail.body(data.cells[key], data.findings);
    detail.show({ title: `${key} ${plain(rule[3])}`, address: rule[4], subtitle, mark: MARK[column.letters[index]], content }, closed);
  }

  async function take(file) {
    if (!file) return;
    count.textContent = `Reading ${file.name}`;
    try {
      const found = await attnspec.dropped.read(file, matrix);
      own = [...found, ...own];
      const first = found[0];
      const stored = matrix.columns.find((column) => column.backend === first.backend && column.newest);
      const second = stored || found[1];
      state = { left: second ? keyOf(second) : "", right: keyOf(first), every: state.every };
      if (second && second.file) state = { left: keyOf(first), right: keyOf(second), every: state.every };
    } catch (error) {
      count.textContent = `${file.name} is no file of results: ${error.message}`;
      return;
    }
    drawForm();
    await draw();
    save();
  }

  // A dropped file is in no address: it was sent nowhere, and nobody else has it.
  function save() {
    const kept = Object.entries(state).filter(([, value]) => value && !String(value).startsWith("file:"));
    attnspec.writeState(Object.fromEntries(kept));
  }

  form.addEventListener("change", (event) => {
    if (event.target.name === "file") {
      take(event.target.files[0]);
      return;
    }
    const values = new FormData(form);
    state = { left: values.get("left"), right: values.get("right"), every: values.get("every") || "" };
    save();
    draw();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  box.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open]");
    if (button) open(button);
  });
  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  addEventListener("dragleave", () => document.body.classList.remove("dragging"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    take(event.dataTransfer.files[0]);
  });

  async function start() {
    state = attnspec.readState();
    for (const name of ["left", "right"]) {
      const column = find(state[name]);
      if (column) state[name] = keyOf(column);
    }
    drawForm();
    await draw();
  }

  addEventListener("hashchange", start);
  await start();
  document.body.dataset.ready = String(Math.round(performance.now()));
})();

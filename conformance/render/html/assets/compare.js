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
  const GRAVEST = "fedsmp";
  const JUDGED = GRAVEST;
  let own = [];
  let names = null;
  let state = attnspec.readState();
  // The file that was read last. The form is drawn anew with it, because scripts cannot keep its name otherwise.
  let taken = null;

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
    if (!taken) return;
    const files = new DataTransfer();
    files.items.add(taken);
    form.elements.file.files = files.files;
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

  // Cases of both runs with another letter, by the rule that they are about: those that both runs judged, and
  // those that one of the runs did not judge, because it does not offer them or did not run them.
  function differing(left, right) {
    const judged = new Map();
    const rest = new Map();
    let [common, only] = [0, 0];
    for (const [name, [letter, rule]] of left) {
      const other = right.get(name);
      if (!other) only += 1;
      else {
        const both = JUDGED.includes(letter) && JUDGED.includes(other[0]);
        common += both;
        if (other[0] === letter) continue;
        const found = both ? judged : rest;
        const of = other[1] || rule;
        if (!found.has(of)) found.set(of, []);
        found.get(of).push([name, letter, other[0]]);
      }
    }
    for (const name of right.keys()) if (!left.has(name)) only += 1;
    return { judged, rest, common, only };
  }

  // How grave the gravest of some differing cases is: a failure in one of the runs comes first.
  function gravity(list) {
    return Math.min(...(list || []).flatMap(([, a, b]) => [GRAVEST.indexOf(a), GRAVEST.indexOf(b)]), GRAVEST.length);
  }

  // What a run does about a rule: its result, and in a deviation how.
  function mark(letter, key, number) {
    const how = ((known()[number] || {}).shown || {})[key];
    return `<td class="c ${letter}"><button type="button" data-open="${esc(key)}" data-side="${number}"><span class="k ${letter}" aria-hidden="true">${MARK[letter][1]}</span> ${esc(MARK[letter][2])}</button>${how ? ` <small>${esc(how)}</small>` : ""}</td>`;
  }

  function cases(list) {
    if (!list || !list.length) return "";
    const items = list.slice(0, MOST).map(([name, a, b]) => `<li><code>${esc(name)}</code>: ${NAME[a]} → ${NAME[b]}</li>`);
    const more = list.length > MOST ? `<li>and ${list.length - MOST} more</li>` : "";
    return `<details><summary>${list.length} case${list.length === 1 ? "" : "s"}</summary><ul>${items.join("")}${more}</ul></details>`;
  }

  function table(shown, rows, label) {
    const heads = shown.map((column) => `<th scope="col">${esc(labelOf(column))}${column.headline && column.file ? `<br><small>${esc(column.headline)}</small>` : ""}</th>`);
    const last = shown.length > 1 ? '<th scope="col">cases with another verdict</th>' : "";
    return `<div class="wide" tabindex="0" role="region" aria-label="${label}"><table class="data comparison"><thead><tr><th scope="col">rule</th>${heads.join("")}${last}</tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
  }

  function levelRow(shown, [level, letters]) {
    const cells = letters.map((letter, n) => levelCell(letter, level.name, shown[n]));
    return `<tr><th scope="row">level ${level.name}</th>${cells.join("")}${shown.length > 1 ? "<td></td>" : ""}</tr>`;
  }

  function ruleRow(shown, [rule, letters], list) {
    const cells = letters.map((letter, n) => mark(letter, rule[0], known().indexOf(shown[n])));
    return `<tr id="${rule[0]}"><th scope="row"><a href="${esc(at(rule[4]))}">${rule[0]}</a> ${esc(plain(rule[3]))}</th>${cells.join("")}${shown.length > 1 ? `<td>${cases(list)}</td>` : ""}</tr>`;
  }

  async function draw() {
    const [left, right] = [find(state.left), find(state.right)];
    box.innerHTML = "";
    if (!left && !right) {
      count.textContent = "";
      return;
    }
    const shown = [left, right].filter(Boolean);
    const levels = matrix.levels.map((level, index) => [level, shown.map((column) => column.levels[index])]);
    const rules = matrix.rules.map((rule, index) => [rule, shown.map((column) => column.letters[index])]);
    if (shown.length > 1) await drawBoth(shown, levels, rules);
    else drawOne(shown, levels, rules);
    document.body.dataset.shown = `${state.left || ""}|${state.right || ""}`;
  }

  // Of one run alone, what does not hold is shown.
  function drawOne(shown, levels, rules) {
    const other = `Choose the ${find(state.left) ? "second" : "first"} run to compare it with.`;
    count.textContent = other;
    if (!shown[0].file) return;
    const wanted = ([, [letter]]) => state.every || !"pun".includes(letter);
    const of = rules.filter(wanted);
    count.textContent = `${labelOf(shown[0])}: ${of.length} rules ${state.every ? "in all" : "do not fully pass"}. ${other}`;
    const rows = [...levels.filter(wanted).map((row) => levelRow(shown, row)), ...of.map((row) => ruleRow(shown, row))];
    box.innerHTML = table(shown, rows, "Results");
  }

  // Of two, what differs in the cases that both judged is shown first. The rest is folded.
  async function drawBoth(shown, levels, rules) {
    const { judged, rest, common, only } = differing(...(await Promise.all(shown.map(casesOf))));
    const differs = ([, letters]) => letters[0] !== letters[1];
    const all = ([rule]) => [...(judged.get(rule[0]) || []), ...(rest.get(rule[0]) || [])];
    // A level that neither run reaches is no difference, whatever each lacks.
    const determined = ([, letters]) => (letters[0] === "p") !== (letters[1] === "p") && !letters.includes("n");
    const first = {
      levels: levels.filter((row) => state.every || determined(row)),
      rules: rules.filter(([rule]) => state.every || judged.has(rule[0])),
    };
    if (!state.every) first.rules.sort(([a], [b]) => gravity(judged.get(a[0])) - gravity(judged.get(b[0])));
    const later = state.every ? { levels: [], rules: [] } : {
      levels: levels.filter((row) => differs(row) && row[1].includes("n")),
      rules: rules.filter((row) => !judged.has(row[0][0]) && (differs(row) || rest.has(row[0][0]))),
    };
    const rowsOf = (found, list) => [...found.levels.map((row) => levelRow(shown, row)), ...found.rules.map((row) => ruleRow(shown, row, list(row)))];
    const total = [...judged.values()].reduce((n, list) => n + list.length, 0);
    count.textContent = `${plural(total, "case")} of the ${common} that both runs judged ${total === 1 ? "has" : "have"} another verdict: ` +
      `${plural(first.levels.length, "level")} and ${plural(first.rules.length, "rule")} ${state.every ? "in all" : "with a difference"}` +
      (only ? `; ${plural(only, "case")} ${only === 1 ? "is" : "are"} in one of the runs only` : "");
    const rows = rowsOf(first, state.every ? all : ([rule]) => judged.get(rule[0]));
    box.innerHTML = rows.length ? table(shown, rows, "Comparison") : "<p>No case that both runs judged has another verdict.</p>";
    const folded = rowsOf(later, all);
    if (!folded.length) return;
    const title = `${plural(later.levels.length, "level")} and ${plural(later.rules.length, "rule")} differ only in what one of the runs did not judge`;
    box.insertAdjacentHTML("beforeend", `<details class="rest"${state.rest ? " open" : ""}><summary>${title}</summary>
<p>A case is not offered by one of the backends, or is not in one of the runs.</p>${table(shown, folded, "What one run did not judge")}</details>`);
    box.querySelector(".rest").addEventListener("toggle", (event) => {
      state = { ...state, rest: event.target.open ? "1" : "" };
      save();
    });
  }

  function plural(number, word) {
    return `${number} ${word}${number === 1 ? "" : "s"}`;
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
      const content = detail.lacks(data.levels[name], matrix.rules);
      detail.show({ title: `Level ${name}`, address: "", subtitle, mark: detail.ofLevel(letter, MARK[letter][1]), content }, closed);
      return;
    }
    const index = matrix.rules.findIndex((rule) => rule[0] === key);
    const rule = matrix.rules[index];
    const content = detail.body(data.cells[key], data.findings);
    const sentence = (await attnspec.load("rules"))[key];
    detail.show({ title: `${key} ${plain(rule[3])}`, address: rule[4], sentence, subtitle, mark: MARK[column.letters[index]], content }, closed);
  }

  async function take(file) {
    if (!file) return;
    count.textContent = `Reading ${file.name}`;
    try {
      const found = await attnspec.dropped.read(file, matrix);
      own = [...own, ...found];
      taken = file;
      state = { ...state, ...sidesOf(found) };
    } catch (error) {
      // What was compared before is not what this file says.
      taken = null;
      state = { ...state, left: "", right: "" };
      drawForm();
      box.innerHTML = "";
      save();
      count.textContent = `${file.name} is no file of results: ${error.message}`;
      return;
    }
    drawForm();
    await draw();
    save();
  }

  // A file takes the side that is free. Without one, it is compared with the stored run of its backend.
  function sidesOf([first, second]) {
    if (second) return { left: keyOf(first), right: keyOf(second) };
    if (find(state.left) && !find(state.right)) return { left: state.left, right: keyOf(first) };
    if (find(state.right) && !find(state.left)) return { left: keyOf(first), right: state.right };
    const stored = matrix.columns.find((column) => column.backend === first.backend && column.newest);
    return stored ? { left: keyOf(stored), right: keyOf(first) } : { left: keyOf(first), right: "" };
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
    state = { ...state, left: values.get("left"), right: values.get("right"), every: values.get("every") || "" };
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

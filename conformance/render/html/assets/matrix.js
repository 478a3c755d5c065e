// The matrix: filters, the table, the keyboard, and the cell that is open. All of it is in the address.
"use strict";

(async () => {
  const { esc, at, plain, detail } = attnspec;
  const matrix = await attnspec.load("matrix");
  const MARK = Object.fromEntries(matrix.marks.map((mark) => [mark[0], mark]));
  const RULES = matrix.rules.map(([id, level, chapter, title, page], index) => ({
    id, level, chapter, title: plain(title), page, index, words: `${id} ${title} ${level}`.toLowerCase(),
  }));
  const NUMBER = new Map(RULES.map((rule) => [rule.id, rule.index]));
  const CHAPTERS = [...new Set(RULES.map((rule) => rule.chapter))];
  const BACKENDS = [...new Set(matrix.columns.map((column) => column.backend))];
  const OLDER = matrix.columns.some((column) => !column.newest);
  const form = document.getElementById("filters");
  const box = document.getElementById("matrix");
  const count = document.getElementById("count");
  // Where there are few columns, a cell has room for words. A narrow screen shows one function at first.
  const ROOM = 4;
  const NARROW = matchMedia("(max-width: 700px)").matches && BACKENDS.length > ROOM;
  const chooser = document.getElementById("function");
  let state = attnspec.readState();
  let columns = [];
  let rows = [];
  let active = [0, 0];

  function option(value, text, chosen) {
    return `<option value="${esc(value)}"${value === chosen ? " selected" : ""}>${esc(text)}</option>`;
  }

  function select(name, label, values, all) {
    const options = values.map(([value, text]) => option(value, text, state[name]));
    return `<label>${label}<select name="${name}"><option value="">${all}</option>${options.join("")}</select></label>`;
  }

  function check(name, value, text) {
    return `<label class="check"><input type="checkbox" name="${name}" value="${value}"${state[name] === value ? " checked" : ""}> ${text}</label>`;
  }

  function shownBackends() {
    if (NARROW && !state.library) return new Set([BACKENDS[0]]);
    return state.library && state.library !== "all" ? new Set(state.library.split(",").map(attnspec.decoded)) : null;
  }

  // A name in a list, in which a comma separates names.
  function listed(name) {
    return name.replaceAll("%", "%25").replaceAll(",", "%2C");
  }

  function drawFilters() {
    const chosen = shownBackends();
    const boxes = BACKENDS.map((name) => {
      const on = !chosen || chosen.has(name) || chosen.has(libraryOf(name));
      return `<label class="check"><input type="checkbox" name="library" value="${esc(name)}"${on ? " checked" : ""}> ${esc(labelOf(name))}</label>`;
    });
    form.innerHTML = `<label>Rule<input type="search" name="q" placeholder="id or words" value="${esc(state.q || "")}"></label>
${select("chapter", "Chapter", CHAPTERS.map((name) => [name, name]), "all chapters")}
${select("level", "Level", matrix.levels.map((level) => [level.name, level.name]), "all levels")}
${select("verdict", "Verdict", [...matrix.marks].reverse().map((mark) => [mark[0], `${mark[1]} ${mark[2]}`]), "any verdict")}
${NARROW ? "" : `<details class="libraries"><summary>Libraries: <span>${chosen ? `${boxes.filter((one) => one.includes(" checked")).length} of ${BACKENDS.length}` : "all"}</span></summary>
<div><button type="button" data-all="1">All</button> <button type="button" data-all="">None</button>${boxes.join("")}</div></details>`}
<div class="checks">${check("only", "failing", "only failing")}${check("differ", "1", "only where they differ")}${OLDER ? check("all", "1", "older versions") : ""}</div>
<button type="reset">Reset</button>`;
    form.hidden = false;
    if (NARROW) {
      const names = BACKENDS.map((name) => option(listed(name), labelOf(name), state.library || listed(BACKENDS[0])));
      const several = (state.library || "").includes(",") ? option(state.library, "several", state.library) : "";
      chooser.innerHTML = `<label>Function<select name="library" form="filters">${several}${names.join("")}${option("all", "all, side by side", state.library)}</select></label>`;
      chooser.hidden = false;
    }
    const choices = form.closest("details");
    choices.open = choices.open || matchMedia("(min-width: 700px)").matches || Object.keys(state).some((name) => !["cell", "at", "levels"].includes(name) && state[name]);
  }

  function libraryOf(backend) {
    return matrix.columns.find((column) => column.backend === backend).library;
  }

  function labelOf(backend) {
    return matrix.columns.find((column) => column.backend === backend).label;
  }

  // The rules of a level and of those that it builds on.
  function rulesOf(name) {
    const found = new Set();
    for (let level = matrix.levels.find((one) => one.name === name); level; ) {
      level.rules.concat(level.offered).forEach((index) => found.add(index));
      level = matrix.levels.find((one) => one.name === level.on);
    }
    return found;
  }

  function wanted(letters) {
    if (state.verdict && !letters.includes(state.verdict)) return false;
    if (state.only === "failing" && !letters.includes("f")) return false;
    return !state.differ || new Set(letters.filter((letter) => letter !== "u" && letter !== "n")).size > 1;
  }

  function choose() {
    const chosen = shownBackends();
    columns = matrix.columns.filter(
      (column) => (column.newest || state.all) && (!chosen || chosen.has(column.backend) || chosen.has(column.library)),
    );
    const words = (state.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    const ofLevel = state.level ? rulesOf(state.level) : null;
    const levels = matrix.levels
      .map((level, index) => ({ level: level.name, index, letters: columns.map((column) => column.levels[index]) }))
      .filter((row) => !state.chapter && (!state.level || row.level === state.level))
      .filter((row) => words.every((word) => row.level.includes(word)) && wanted(row.letters));
    const rules = RULES.filter((rule) => !state.chapter || rule.chapter === state.chapter)
      .filter((rule) => (!ofLevel || ofLevel.has(rule.index)) && words.every((word) => rule.words.includes(word)))
      .map((rule) => ({ rule, letters: columns.map((column) => column.letters[rule.index]) }))
      .filter((row) => wanted(row.letters));
    return { levels, rules };
  }

  function cell(letter, label, attributes, extent = "", text = MARK[letter][1]) {
    const at_ = Number(/data-column="(\d+)"/.exec(attributes)[1]);
    return `<td class="${letter}${edge(at_)}" tabindex="-1" aria-label="${esc(label)}" ${attributes}>${text}${extent}</td>`;
  }

  // A share that is neither none nor all is never shown as such.
  function percent(bad, judged) {
    return `${Math.max(1, bad < judged ? Math.min(99, Math.round((100 * bad) / judged)) : 100)}%`;
  }

  // How much of a rule does not hold, and how: a share of the judged cases, or where there is room, all of it.
  function extent(column, rule, letter) {
    if (!"fds".includes(letter)) return "";
    const [bad, judged] = [column.bad[rule.index], column.judged[rule.index]];
    if (columns.length <= ROOM) {
      const shown = (column.shown || {})[rule.id];
      return ` <small>${bad} of ${judged} cases${shown ? `: ${esc(shown)}` : ""}</small>`;
    }
    return `<small>${percent(bad, judged)}</small>`;
  }

  function label(column, rule, letter) {
    const of = `${column.bad[rule.index]} of ${column.judged[rule.index]}`;
    const number = "fds".includes(letter) && columns.length > ROOM ? `, ${percent(column.bad[rule.index], column.judged[rule.index])}, ${of} cases` : "fdsm".includes(letter) ? `, ${of} cases` : letter === "p" ? `, ${column.judged[rule.index]} cases` : "";
    const shown = letter === "d" ? column.shown[rule.id] : "";
    return `${column.label} ${column.version}, ${rule.id}: ${MARK[letter][2]}${number}${shown ? `: ${shown}` : ""}`;
  }

  function levelRow({ level, index, letters }) {
    const cells = letters.map((letter, at_) => {
      const missing = `lacks ${columns[at_].lacks[index]} rule${columns[at_].lacks[index] === 1 ? "" : "s"}`;
      const what = letter === "p" ? "reached" : letter === "n" ? "not determined" : `not reached, ${missing}, ${MARK[letter][2]}`;
      // Without one grave colour for all: how many rules it lacks.
      const lacks = "pn".includes(letter) ? MARK[letter][1] : columns[at_].lacks[index];
      const words = columns.length > ROOM ? lacks : letter === "p" ? `${lacks} reached` : letter === "n" ? `${lacks} not determined` : missing;
      return cell("pn".includes(letter) ? letter : "u", `${columns[at_].label} ${columns[at_].version}, level ${level}: ${what}`, `data-level="${level}" data-column="${at_}"`, "", words);
    });
    return `<tr><th scope="row" tabindex="-1"><b>${level}</b></th>${cells.join("")}</tr>`;
  }

  // Of the rules that a column was judged on, the number that it keeps.
  function summaryRow() {
    const cells = columns.map((column, at_) => {
      const judged = [...column.letters].filter((letter) => letter !== "u" && letter !== "n");
      const kept = judged.filter((letter) => letter === "p").length;
      return `<td class="sum${edge(at_)}" tabindex="-1" aria-label="${esc(`${column.label} ${column.version}: keeps ${kept} of ${judged.length} rules`)}">${kept} <small>of ${judged.length}</small></td>`;
    });
    return `<tr class="summary"><th scope="row" tabindex="-1"><b>Rules kept</b></th>${cells.join("")}</tr>`;
  }

  // The first column of portable code has a double line before it.
  function edge(at_) {
    return columns[at_].portable && (at_ === 0 || !columns[at_ - 1].portable) ? " edge" : "";
  }

  function ruleRow({ rule, letters }) {
    const cells = letters.map((letter, at_) => cell(letter, label(columns[at_], rule, letter), `data-rule="${rule.index}" data-column="${at_}"`, extent(columns[at_], rule, letter)));
    return `<tr id="${rule.id}"><th scope="row" tabindex="-1" title="${esc(`${rule.id} ${rule.title}`)}"><a tabindex="-1" href="${esc(at(rule.page))}">${rule.id}</a>
<span class="level">${rule.level}</span> <span class="title">${esc(rule.title)}</span></th>${cells.join("")}</tr>`;
  }

  function group(name, body) {
    return `<tbody><tr class="group"><th scope="rowgroup" colspan="${columns.length + 1}"><span>${esc(name[0].toUpperCase() + name.slice(1))}</span></th></tr>${body}</tbody>`;
  }

  function folded(levels) {
    const name = `${levels.length} levels are not determined: only a run of the whole suite determines them`;
    const button = `<button type="button" data-levels aria-expanded="${Boolean(state.levels)}">${state.levels ? "Hide" : "Show"}</button>`;
    return `<tbody><tr class="group folded"><th scope="rowgroup" colspan="${columns.length + 1}"><span>${name} ${button}</span></th></tr>${state.levels ? levels.map(levelRow).join("") : ""}</tbody>`;
  }

  function draw() {
    const { levels, rules } = choose();
    const heads = columns.map((column, index) => {
      const old = column.newest && !state.all ? "" : ` <small>${esc(column.date)}</small>`;
      return `<th scope="col" tabindex="-1" class="name"><a tabindex="-1" href="${esc(column.page)}" title="${esc(`${column.label}, ${column.library} ${column.version}, by version ${column.attnspec} of the standard: ${column.headline}`)}"><span>${esc(column.label)} <small>${esc(column.version)}</small>${old}</span></a></th>`;
    });
    // Of a part of the suite no level is determined: what fails is first, and the levels are folded at the end.
    const part = columns.length > 0 && columns.every((column) => /^n*$/.test(column.levels));
    const failing = part ? rules.filter((row) => row.letters.includes("f")) : [];
    const bodies = [];
    if (columns.length && !part && rules.length === RULES.length) bodies.push(`<tbody>${summaryRow()}</tbody>`);
    if (failing.length) bodies.push(group("Rules with a failure", failing.map(ruleRow).join("")));
    if (levels.length && !part) bodies.push(group("Levels: reached, or how many rules are lacking", levels.map(levelRow).join("")));
    for (const chapter of CHAPTERS) {
      const of = rules.filter((row) => row.rule.chapter === chapter && !failing.includes(row));
      if (of.length) bodies.push(group(chapter, of.map(ruleRow).join("")));
    }
    if (levels.length && part) bodies.push(folded(levels));
    box.innerHTML = `<table class="matrix${columns.length <= ROOM ? " few" : ""}" role="grid" aria-label="Results by rule and library"><thead><tr><th scope="col" class="corner" tabindex="-1">Rule</th>${heads.join("")}</tr></thead>${bodies.join("")}</table>`;
    count.textContent = `${rules.length} of ${RULES.length} rules, ${columns.length} ${columns.length === 1 ? "column" : "columns"}`;
    if (!rules.length && !levels.length) count.textContent += ": nothing fits these filters";
    rows = [...box.querySelectorAll("tr:not(.group)")];
    active = [Math.min(1, rows.length - 1), Math.min(1, columns.length)];
    const first = cellAt(active);
    if (first) first.tabIndex = 0;
  }

  function cellAt([row, column]) {
    return rows[row] && rows[row].children[column];
  }

  // Makes a cell the only one that the Tab key reaches.
  function mark(place) {
    const before = cellAt(active);
    if (before) before.tabIndex = -1;
    active = [Math.max(0, Math.min(rows.length - 1, place[0])), Math.max(0, Math.min(columns.length, place[1]))];
    cellAt(active).tabIndex = 0;
  }

  function focus(place) {
    mark(place);
    const next = cellAt(active);
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  const MOVES = {
    ArrowUp: ([row, column]) => [row - 1, column],
    ArrowDown: ([row, column]) => [row + 1, column],
    ArrowLeft: ([row, column]) => [row, column - 1],
    ArrowRight: ([row, column]) => [row, column + 1],
    PageUp: ([row, column]) => [row - 15, column],
    PageDown: ([row, column]) => [row + 15, column],
    Home: ([row]) => [row, 0],
    End: ([row]) => [row, columns.length],
  };

  async function open(key) {
    const [what, slug] = [key.slice(0, key.indexOf(":")), key.slice(key.indexOf(":") + 1)];
    const column = matrix.columns.find((one) => one.slug === slug) ||
      matrix.columns.find((one) => one.backend === slug && one.newest);
    const level = matrix.levels.findIndex((one) => `level.${one.name}` === what);
    const rule = RULES[NUMBER.get(what)];
    if (!column || (!rule && level < 0)) return;
    const [data, sentences] = await Promise.all([attnspec.load(column.slug), attnspec.load("rules")]);
    const subtitle = `<a href="${esc(column.page)}">${esc(column.label)}</a>, ${esc(column.library)} ${esc(column.version)}, run of ${column.date}, version ${esc(column.attnspec)} of the standard`;
    const letter = rule ? column.letters[rule.index] : column.levels[level];
    const content = rule ? detail.body(data.cells[rule.id], data.findings) : detail.lacks(data.levels[matrix.levels[level].name], matrix.rules);
    const about = rule ? { title: `${rule.id} ${rule.title}`, address: rule.page, sentence: sentences[rule.id] } : { title: `Level ${matrix.levels[level].name}`, address: "" };
    const shown = rule ? MARK[letter] : detail.ofLevel(letter, MARK[letter][1]);
    const key_ = rule ? `[data-rule="${rule.index}"]` : `[data-level="${matrix.levels[level].name}"]`;
    const place = columns.indexOf(column);
    box.querySelectorAll("td.shown-cell").forEach((each) => each.classList.remove("shown-cell"));
    const opened_ = box.querySelector(`td${key_}[data-column="${place}"]`);
    if (opened_) {
      mark([rows.indexOf(opened_.parentElement), opened_.cellIndex]);
      opened_.classList.add("shown-cell");
    }
    detail.show({ ...about, subtitle, mark: shown, content }, () => {
      state = { ...state, cell: "" };
      attnspec.writeState(state);
      box.querySelectorAll("td.shown-cell").forEach((each) => each.classList.remove("shown-cell"));
      const cell_ = cellAt(active);
      if (cell_) cell_.focus();
    });
    // The panel takes room: the cell stays in view beside it.
    if (opened_) opened_.scrollIntoView({ block: innerWidth > 700 ? "center" : "start", inline: "center" });
  }

  function opened(cell_) {
    const column = columns[Number(cell_.dataset.column)];
    const key = cell_.dataset.level ? `level.${cell_.dataset.level}` : RULES[Number(cell_.dataset.rule)].id;
    mark([rows.indexOf(cell_.parentElement), cell_.cellIndex]);
    state = { ...state, cell: `${key}:${column.slug}` };
    attnspec.writeState(state);
    open(state.cell);
  }

  box.addEventListener("keydown", (event) => {
    if (event.target.closest("[data-levels]")) return;
    const here = event.target.closest("td, th");
    if (!here || event.altKey || event.ctrlKey || event.metaKey) return;
    if (MOVES[event.key]) {
      event.preventDefault();
      focus(MOVES[event.key](active));
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (here.tagName === "TD" && here.dataset.column) opened(here);
      else if (here.querySelector("a")) here.querySelector("a").click();
    }
  });
  box.addEventListener("click", (event) => {
    if (event.target.closest("[data-levels]")) {
      state = { ...state, levels: state.levels ? "" : "1" };
      attnspec.writeState(state);
      draw();
      box.querySelector("[data-levels]").focus();
      return;
    }
    const here = event.target.closest("td");
    if (here && here.dataset.column) opened(here);
  });
  box.addEventListener("mouseover", (event) => {
    const here = event.target.closest("td");
    if (here && !here.title) here.title = here.getAttribute("aria-label");
  });

  function changed() {
    const values = new FormData(form);
    const library = values.getAll("library");
    state = {
      q: values.get("q").trim(),
      chapter: values.get("chapter"),
      level: values.get("level"),
      verdict: values.get("verdict"),
      library: NARROW ? library[0] : library.length === BACKENDS.length ? "" : library.map(listed).join(",") || "none",
      only: values.get("only") || "",
      differ: values.get("differ") || "",
      all: values.get("all") || "",
      levels: state.levels || "",
    };
    attnspec.writeState(state);
    const chosen = form.querySelector("summary span");
    if (chosen) chosen.textContent = library.length === BACKENDS.length ? "all" : `${library.length} of ${BACKENDS.length}`;
    draw();
  }

  form.addEventListener("input", changed);
  chooser.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    state = {};
    attnspec.writeState(state);
    drawFilters();
    draw();
  });
  form.addEventListener("click", (event) => {
    const button = event.target.closest("[data-all]");
    if (!button) return;
    form.querySelectorAll('input[name="library"]').forEach((one) => (one.checked = Boolean(button.dataset.all)));
    changed();
  });

  function start() {
    state = attnspec.readState();
    drawFilters();
    draw();
    if (state.at && NUMBER.has(state.at)) {
      const row = document.getElementById(state.at);
      mark([rows.indexOf(row), 0]);
      row.classList.add("found");
      row.scrollIntoView({ block: "center" });
    } else if (state.cell) {
      const [what] = state.cell.split(":");
      const row = document.getElementById(what);
      if (row) row.scrollIntoView({ block: "center" });
      open(state.cell);
    }
  }

  addEventListener("hashchange", start);
  start();
  document.body.dataset.ready = String(Math.round(performance.now()));
})();

// Reads a results file in the browser, and makes of it what `attnspec report` makes: the same columns and cells.
"use strict";

attnspec.dropped = (() => {
  const BAD = ["fail", "error"];
  const LETTERS = { fail: "f", error: "f", deviation: "d", "should not met": "s", "not shown": "m", unsupported: "u", pass: "p" };
  const ORDER = ["fail", "error", "deviation", "should not met", "not shown", "pass", "unsupported"];
  const AGAINST = ["fail", "error", "deviation", "should not met", "not shown"];
  const SCHEMA = 3;

  const about = (verdict) => verdict.rule || verdict.rules[0] || "";

  // The result of each rule of a verdict: one that breaks a rule says nothing about its other rules.
  function says(verdict) {
    const rule = about(verdict);
    const all = (status) => Object.fromEntries((verdict.rules.length ? verdict.rules : [rule]).map((one) => [one, status]));
    if (verdict.status === "deviation") return { ...all("pass"), [rule]: verdict.status };
    if (verdict.status === "fail" || verdict.status === "should not met") return { [rule]: verdict.status };
    if (verdict.status === "unsupported" && verdict.rule) return { [rule]: "not shown" };
    return all(verdict.status);
  }

  function letterOf(counts) {
    const found = ORDER.find((status) => counts && counts[status]);
    return found ? LETTERS[found] : "n";
  }

  // What a level lacks, by rule. It is null if the run was not whole.
  function standings(levels, rules, byRule, verdicts, whole) {
    if (!whole) return {};
    const done = {};
    const needed = [...new Set(verdicts.filter((one) => one.accuracy).map((one) => `${one.dtype || ""} ${one.accuracy}`))].sort();
    for (const level of levels) {
      let missing = { ...(level.on ? done[level.on] : {}) };
      for (const index of level.rules.concat(level.offered)) {
        const id = rules[index][0];
        const counts = byRule[id] || {};
        const bad = AGAINST.find((status) => counts[status]);
        if (bad) missing[id] = bad;
        else if (!counts.pass && level.rules.includes(index)) missing[id] = Object.keys(counts).length ? "unsupported" : "not judged";
      }
      const loose = level.accuracy
        ? needed.map((one) => one.split(" ")).filter(([, name]) => name !== level.accuracy)
        : [];
      if (loose.length) missing = { "NUM-3": loose.map(([dtype, name]) => `class ${name} in ${dtype}`).join(", "), ...missing };
      done[level.name] = missing;
    }
    return done;
  }

  function letterOfLevel(level, missing, rules) {
    if (!missing) return "n";
    const letter = (what) => (what === "not judged" ? "n" : LETTERS[what] || "s");
    const own = level.rules.map((index) => missing[rules[index][0]]).map((what) => what && letter(what));
    const offered = !own.length || own.some((one) => !["u", "m", "n"].includes(one));
    const found = offered ? Object.values(missing).map(letter) : own;
    return ["f", "d", "s", "m", "n", "u"].find((letter) => found.includes(letter)) || "p";
  }

  // A verdict as an example of a cell. Its command makes the call again; the script is in the report.
  function example(verdict, number, seed) {
    const one = { case: verdict.case, status: verdict.status, number, declared: verdict.declared, notes: [] };
    const difference = verdict.difference;
    if (difference) {
      const element = (difference.element || []).length ? `[${difference.element.join(", ")}]` : "";
      one.place = `${difference.output}${element}`;
      one.got = String(difference.got ?? "");
      one.expected = String(difference.expected ?? "");
      if (difference.kind === "value") {
        one.allowed = "share" in difference ? Number(difference.allowed || 0).toPrecision(3) : "0: nothing may be off here";
        one.off = "share" in difference ? `${Number(difference.share).toPrecision(3)} times the allowed error; ` : "";
      }
      if (difference.size) one.off = `${one.off || ""}${difference.count} of ${difference.size} elements differ`;
    }
    if (verdict.reason) one.notes.push(verdict.reason);
    if (verdict.raised && verdict.raised.type) one.notes.push(`raised ${verdict.raised.type}: ${verdict.raised.message}`);
    if (verdict.raised && verdict.raised.file) one.notes.push(`at ${verdict.raised.file}, line ${verdict.raised.line}`);
    if (verdict.ignored) one.notes.push(`equals the result without \`${verdict.ignored}\``);
    if (verdict.variant) one.notes.push(`equals the variant \`${verdict.variant}\` of ${about(verdict)}`);
    if (verdict.precision) one.notes.push(`some step is done in ${verdict.precision}`);
    one.notes = one.notes.map((text) => String(text).slice(0, 1000));
    const drawn = seed === null ? "" : ` --seed ${seed}`;
    if (verdict.case) one.command = `attnspec check ${quoted(verdict.backend)}${drawn} --case ${quoted(verdict.case)}`;
    return one;
  }

  function quoted(word) {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;
  }

  function cellsOf(verdicts, seed) {
    const found = {};
    for (const verdict of verdicts) {
      for (const [rule, status] of Object.entries(says(verdict))) {
        const cell = (found[rule] = found[rule] || { counts: {}, kept: {}, reason: "" });
        cell.counts[status] = (cell.counts[status] || 0) + 1;
        if (status === "unsupported") cell.reason = cell.reason || verdict.reason || "";
        else if (status !== "pass") (cell.kept[status] = cell.kept[status] || []).push(verdict);
      }
    }
    for (const cell of Object.values(found)) {
      const of = AGAINST.filter((status) => cell.kept[status]);
      cell.examples = of.map((status) => {
        const plainest = cell.kept[status].reduce((a, b) => (rank(b) < rank(a) ? b : a));
        return example(plainest, cell.kept[status].length, seed);
      });
      if (of.length || cell.counts.pass) cell.reason = "";
      delete cell.kept;
    }
    return found;
  }

  const rank = (verdict) => (verdict.difference ? 0 : 1000) + verdict.case.length;

  function letterOfCase(verdict) {
    if (verdict.status === "unsupported") return verdict.rule ? "m" : "u";
    return verdict.status === "error" ? "e" : LETTERS[verdict.status];
  }

  // Makes a column and its data of one backend of a run.
  function columnOf(run, subject, matrix, name) {
    const own = run.verdicts.filter((one) => one.backend === subject.name);
    const judged = new Set(own.map((one) => one.case));
    const missing = run.header.cases.filter((one) => !judged.has(one));
    const declined = own.filter((one) => one.declined).length;
    const cut = !run.ended || subject.problem || missing.length ||
      declined > own.filter((one) => one.status !== "unsupported").length;
    const cells = cellsOf(own, run.header.seed);
    const counts = Object.fromEntries(Object.entries(cells).map(([rule, cell]) => [rule, cell.counts]));
    const levels = standings(matrix.levels, matrix.rules, counts, own, run.header.part === "whole" && !cut);
    const cases = new Map(missing.map((one) => [one, ["-", ""]]));
    for (const one of own) if (one.case) cases.set(one.case, [letterOfCase(one), "pu".includes(letterOfCase(one)) ? "" : about(one)]);
    const sum = (of, statuses) => statuses.reduce((n, status) => n + ((of || {})[status] || 0), 0);
    return {
      slug: "", file: name, backend: subject.name, library: subject.library, version: subject.version,
      date: "", attnspec: run.header.attnspec, part: run.header.part, newest: false, page: "",
      headline: cut ? "not judged whole" : run.header.part === "whole" ? "" : `a part of the suite: ${run.header.part}`,
      letters: matrix.rules.map((rule) => letterOf(counts[rule[0]])).join(""),
      levels: matrix.levels.map((level) => letterOfLevel(level, levels[level.name], matrix.rules)).join(""),
      bad: matrix.rules.map((rule) => sum(counts[rule[0]], AGAINST)),
      judged: matrix.rules.map((rule) => sum(counts[rule[0]], ["pass", ...AGAINST])),
      data: { cells, levels, findings: {}, cases },
    };
  }

  // Reads the runs of a text of JSON lines. An incomplete last line is left out, as the command line does.
  function runsOf(text) {
    const lines = text.split("\n");
    lines.pop();
    const runs = [];
    lines.forEach((line, index) => {
      const wrong = (why) => new Error(`line ${index + 1}: ${why}`);
      let entry;
      try {
        entry = JSON.parse(line.replace(/([:[,]\s*)(-?Infinity|NaN)(?=\s*[,}\]])/g, '$1"$2"'));
      } catch {
        throw wrong("this is no line of results");
      }
      const [kind, thing] = Object.entries(entry || {})[0] || [];
      const run = runs[runs.length - 1];
      if (kind === "header") {
        if (thing.schema !== SCHEMA) throw wrong(`expected schema ${SCHEMA}, got ${thing.schema}`);
        if (!Array.isArray(thing.cases)) throw wrong("expected a header with a plan of cases");
        runs.push({ header: thing, subjects: new Map(), verdicts: [], ended: false });
      } else if (!run || run.ended) throw wrong(`expected a header, got ${kind || "nothing"}`);
      else if (kind === "subject" && typeof thing.name === "string") run.subjects.set(thing.name, thing);
      else if (kind === "verdict" && typeof thing.case === "string" && Array.isArray(thing.rules) && thing.status in LETTERS) run.verdicts.push(thing);
      else if (kind === "footer") {
        if (thing.verdicts !== run.verdicts.length) throw wrong(`expected ${thing.verdicts} verdicts before it, got ${run.verdicts.length}`);
        run.ended = true;
      } else throw wrong(`expected a header, a subject, a verdict or a footer, got ${kind || "nothing"}`);
    });
    if (!runs.length) throw new Error("expected a header in the first line, got no whole line");
    return runs;
  }

  async function textOf(file) {
    if (file.name.endsWith(".xz")) throw new Error("a browser cannot expand xz: run `xz -dk` on the file first");
    if (!file.name.endsWith(".gz")) return file.text();
    return new Response(file.stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  // Reads a file, and returns a column for each of its backends.
  async function read(file, matrix) {
    const found = [];
    for (const run of runsOf(await textOf(file))) {
      for (const subject of run.subjects.values()) found.push(columnOf(run, subject, matrix, file.name));
    }
    if (!found.length) throw new Error("expected the results of a backend, got none");
    return found;
  }

  return { read, BAD };
})();

// The panel that an opened cell shows: what was got, expected and allowed, and how to see it again.
"use strict";

attnspec.detail = (() => {
  const { esc, at, plain } = attnspec;
  const panel = document.getElementById("detail");
  let onClose = () => {};

  // Backquotes in our texts quote code.
  function prose(text) {
    return esc(text).replace(/`([^`]+)`/g, "<code>$1</code>");
  }

  function code(label, text) {
    if (!text) return "";
    return `<div class="code"><span>${esc(label)}</span><button type="button" data-copy>Copy</button>
<pre tabindex="0"><code>${esc(text)}</code></pre></div>`;
  }

  function example(one, findings) {
    const number = one.number > 1 ? `, one of ${one.number} like it` : "";
    const facts = [
      ["at", one.place],
      ["got", one.got],
      ["expected", one.expected],
      ["allowed", one.allowed],
      ["", one.off],
    ].filter(([, value]) => value);
    const table = facts.map(([name, value]) => `<dt>${name}</dt><dd>${esc(value)}</dd>`).join("");
    const notes = (one.notes || []).map((text) => `<li>${prose(text)}</li>`).join("");
    const declared = (one.declared || []).map((text) => {
      const name = text.split(" ").pop();
      return findings[name] ? `<a href="${esc(at(findings[name]))}">${esc(text)}</a>` : esc(text);
    });
    return `<article><h3>${esc(one.status)}: <code>${esc(one.case || "no single case")}</code>${one.dtype ? `, ${esc(one.dtype)}` : ""}${number}</h3>
${table ? `<dl>${table}</dl>` : ""}${notes ? `<ul>${notes}</ul>` : ""}
${declared.length ? `<p>Declared: ${declared.join(", ")}</p>` : ""}
${code("Script", one.script)}${code("Judge it again", one.command)}</article>`;
  }

  function body(cell, findings) {
    if (!cell) return "<p>These results have no verdict on this rule. That is neither a pass nor a failure.</p>";
    const counts = Object.entries(cell.counts)
      .map(([status, number]) => `${number} ${status === "unsupported" ? "not offered" : status}`)
      .join(", ");
    const others = cell.others ? `. In ${cell.others} more ${cell.others === 1 ? "case" : "cases"} of other rules the deviation shows too.` : "";
    let text = `<p>Cases of this rule: ${esc(counts)}${others}</p>`;
    for (const one of cell.examples || []) text += example(one, findings);
    if (cell.more > 0) text += `<p>${cell.more} more kinds of these results are in the results file.</p>`;
    if (cell.most && cell.most.case) {
      const share = cell.most.share ? `, with ${esc(cell.most.share)} of its allowed error (class ${esc(cell.most.accuracy)})` : "";
      text += `<p>Of the passing cases, <code>${esc(cell.most.case)}</code> used the most${share}.</p>`;
      text += code("Judge it again", cell.most.command);
    }
    if (cell.reason) text += `<p>${prose(cell.reason)}</p>`;
    return text;
  }

  function lacks(missing, rules) {
    if (!missing) return "<p>The run was not of the whole suite, so that its levels are not determined.</p>";
    const entries = Object.entries(missing);
    if (!entries.length) return "<p>Every rule of this level holds.</p>";
    const known = new Map(rules.map((rule) => [rule[0], rule]));
    const items = entries.map(([id, what]) => {
      const rule = known.get(id);
      const name = rule ? `<a href="${esc(at(rule[4]))}">${esc(id)}</a> ${esc(plain(rule[3]))}` : esc(id);
      return `<li>${name}: ${esc(what)}</li>`;
    });
    return `<p>It lacks:</p><ul>${items.join("")}</ul>`;
  }

  // Shows the panel. `onClosed` gives the focus back to what opened it.
  function show({ title, address, sentence, subtitle, mark, content }, onClosed) {
    onClose = onClosed;
    const name = address ? `<a href="${esc(at(address))}">${esc(title)}</a>` : esc(title);
    panel.innerHTML = `<div class="head"><h2 id="detail-title">${name}</h2>
<button type="button" class="close" aria-label="Close">×</button></div>
${sentence ? `<p class="sentence">${prose(sentence)}</p>` : ""}<p>${subtitle}</p><p><span class="k ${mark[0]}" aria-hidden="true">${mark[1]}</span> <b>${esc(mark[2])}</b>: ${esc(mark[3])}</p>${content}`;
    panel.hidden = false;
    document.body.classList.add("opened");
    panel.scrollTop = 0;
    panel.focus();
  }

  function close() {
    if (panel.hidden) return;
    panel.hidden = true;
    document.body.classList.remove("opened");
    onClose();
  }

  // The mark of a level. Of a part of the suite, no level is determined.
  function ofLevel(letter, symbol) {
    if (letter === "p") return [letter, symbol, "reached", "every rule of the level holds"];
    if (letter === "n") return [letter, symbol, "not determined", "some rules of the level were not run"];
    return [letter, symbol, "not reached", "see what it lacks"];
  }

  async function copy(button) {
    const text = button.parentElement.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.parentElement.querySelector("code"));
      button.textContent = "Selected";
    }
  }

  if (panel) {
    panel.addEventListener("click", (event) => {
      if (event.target.closest(".close")) close();
      const button = event.target.closest("[data-copy]");
      if (button) copy(button);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
    });
  }

  return { show, close, body, lacks, ofLevel };
})();

// What the pages do besides showing text: suggestions of names, hits by name, copies of vectors, filters of tables.
// Nothing is fetched: data are scripts beside the pages, so that all of it works from file:// too.
(() => {
  "use strict";
  const root = document.documentElement.dataset.content_root || "./";
  const loading = new Map();

  function load(address) {
    if (!loading.has(address)) {
      loading.set(
        address,
        new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = address;
          script.onload = done;
          script.onerror = failed;
          document.head.append(script);
        }),
      );
    }
    return loading.get(address);
  }

  // Names: everything with an address.
  let names = [];
  window.attnspecNames = (rows) => {
    names = rows.map(([kind, name, title, address, words, text]) => ({
      kind,
      name,
      title,
      address,
      low: name.toLowerCase(),
      also: words.toLowerCase().split(" "),
      all: `${name} ${title} ${kind} ${text}`.toLowerCase(),
    }));
  };
  const order = ["rule", "term", "library", "operation", "argument", "variant", "page", "finding", "case", "entry"];
  const called = { entry: "gallery", case: "case", page: "page" };

  function found(text, most) {
    const query = text.trim().toLowerCase().replace(/[\u2010-\u2015]/g, "-");
    if (query.length < 2) return [];
    const words = query.split(/\s+/);
    const hits = [];
    for (const one of names) {
      let rank = -1;
      const last = one.low.split(/[.:/]/).pop();
      if (one.low === query || one.low === query.replace(/\s+/g, "-")) rank = 0;
      else if (last === query || one.also.includes(query)) rank = 1;
      else if (one.low.startsWith(query) && !["entry", "case"].includes(one.kind)) rank = 2;
      else if (words.every((word) => one.all.includes(word))) rank = 3;
      const title = `${one.name} ${one.title}`.toLowerCase();
      const far = words.every((word) => title.includes(word)) ? 0 : 1;
      if (rank >= 0) hits.push([rank, order.indexOf(one.kind), far * 1000 + one.name.length, one]);
    }
    const main = (one) => (one.low.startsWith("attention.") ? 0 : 1);
    hits.sort((a, b) => a[0] - b[0] || a[1] - b[1] || main(a[3]) - main(b[3]) || a[2] - b[2] || (a[3].name < b[3].name ? -1 : 1));
    // An argument that several operations have is listed once: that of the first, which is attention.
    const seen = new Set();
    const first = hits.filter(([rank, , , one]) => {
      const key = one.kind === "argument" && rank ? one.low.split(".").pop() : one.low + one.kind;
      return !seen.has(key) && seen.add(key);
    });
    return first.slice(0, most).map((hit) => hit[3]);
  }

  function item(one, tag) {
    const li = document.createElement("li");
    const kind = document.createElement("span");
    kind.className = "kind";
    kind.textContent = called[one.kind] || one.kind;
    const link = document.createElement(tag);
    if (tag === "a") link.href = root + one.address;
    link.textContent = one.name;
    const title = document.createElement("small");
    title.textContent = ` ${one.title}`;
    li.append(kind, link, title);
    return li;
  }

  // Suggestions while one types, as a combobox.
  document.querySelectorAll('input[name="q"]').forEach((input, place) => {
    const list = document.createElement("ul");
    list.id = `suggested-${place}`;
    list.className = "names suggested";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Names");
    list.hidden = true;
    input.after(list);
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-expanded", "false");
    input.setAttribute("aria-controls", list.id);
    input.autocomplete = "off";
    let hits = [];
    let chosen = -1;
    const show = () => {
      hits = found(input.value, 10);
      chosen = -1;
      list.replaceChildren(
        ...hits.map((one, index) => {
          const li = item(one, "span");
          li.id = `${list.id}-${index}`;
          li.setAttribute("role", "option");
          li.setAttribute("aria-selected", "false");
          li.addEventListener("mousedown", (event) => {
            event.preventDefault();
            location.href = root + one.address;
          });
          return li;
        }),
      );
      list.hidden = !hits.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
      input.removeAttribute("aria-activedescendant");
    };
    const hide = () => {
      list.hidden = true;
      input.setAttribute("aria-expanded", "false");
    };
    const choose = (to) => {
      chosen = (to + hits.length + 1) % (hits.length + 1) === hits.length ? -1 : (to + hits.length + 1) % (hits.length + 1);
      [...list.children].forEach((li, index) => li.setAttribute("aria-selected", String(index === chosen)));
      if (chosen >= 0) {
        input.setAttribute("aria-activedescendant", `${list.id}-${chosen}`);
        list.children[chosen].scrollIntoView({ block: "nearest" });
      } else input.removeAttribute("aria-activedescendant");
    };
    input.addEventListener("focus", () => load(`${root}_static/names.js`));
    input.addEventListener("input", () => load(`${root}_static/names.js`).then(show));
    input.addEventListener("blur", hide);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      if (list.hidden) return;
      if (event.key === "ArrowDown") choose(chosen + 1);
      else if (event.key === "ArrowUp") choose(chosen < 0 ? hits.length - 1 : chosen - 1);
      else if (event.key === "Enter" && chosen >= 0) location.href = root + hits[chosen].address;
      else return;
      event.preventDefault();
    });
  });

  // The page of results: names come first, then the full text.
  const results = document.getElementById("search-results");
  const asked = new URLSearchParams(location.search).get("q");
  if (results && asked) {
    load(`${root}_static/names.js`).then(() => {
      const hits = found(asked, 12);
      const part = document.createElement("section");
      part.className = "hits";
      const head = document.createElement("h2");
      head.textContent = hits.length ? "By name" : "Nothing has this name";
      const list = document.createElement("ul");
      list.className = "names";
      list.append(...hits.map((one) => item(one, "a")));
      part.append(head, list);
      results.before(part);
    });
  }

  // Copies. A vector in other formats is a script of its own, loaded when it is asked for.
  const cases = new Map();
  window.attnspecCase = (id, texts) => cases.set(id, texts);

  function copied(text) {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    return Promise.resolve();
  }

  const said = document.createElement("div");
  said.setAttribute("role", "status");
  said.className = "visually-hidden";
  document.body.append(said);

  function tell(button, text) {
    const before = button.textContent;
    button.textContent = text;
    said.textContent = text;
    setTimeout(() => (button.textContent = before), 1200);
  }

  document.querySelectorAll("button[data-case]").forEach((button) => {
    button.addEventListener("click", () => {
      const { case: id, format } = button.dataset;
      load(`${root}_static/vectors/${id}.js`)
        .then(() => copied(cases.get(id)[format]))
        .then(() => tell(button, "copied"))
        .catch(() => tell(button, "not copied"));
    });
  });

  document.querySelectorAll("div.highlight").forEach((block) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-code";
    button.textContent = "copy";
    button.addEventListener("click", () => {
      copied(block.querySelector("pre").textContent).then(() => tell(button, "copied"));
    });
    block.append(button);
    block.querySelector("pre").tabIndex = 0; // it may scroll, and the keyboard must reach it
  });

  document.querySelectorAll(".table-wrapper").forEach((table) => (table.tabIndex = 0));

  // Tables with a filter. The text of the filter is kept in the address.
  document.querySelectorAll("input[data-filter]").forEach((input) => {
    const rows = [...document.querySelectorAll(`table.${input.dataset.filter} tbody tr`)].map((row) => [row, row.textContent.toLowerCase()]);
    const filter = () => {
      const words = input.value.toLowerCase().split(/\s+/);
      for (const [row, text] of rows) row.hidden = !words.every((word) => text.includes(word));
      document.querySelectorAll(`table.${input.dataset.filter}`).forEach((table) => {
        const empty = !table.querySelector("tbody tr:not([hidden])");
        (table.closest("section") || table).hidden = empty && !!table.closest("section section");
      });
    };
    const given = new URLSearchParams(location.hash.slice(1)).get("show");
    if (given) input.value = given;
    filter();
    input.addEventListener("input", () => {
      filter();
      history.replaceState(null, "", input.value ? `#show=${encodeURIComponent(input.value)}` : location.pathname + location.search);
    });
  });

  // Cases: the name of a generated case leads to its group. Anchors inside of folded parts open them.
  function reveal() {
    let id = decodeURIComponent(location.hash.slice(1));
    if (!id || id.includes("=")) return;
    let target = document.getElementById(id);
    while (!target && /-[^-]+$/.test(id)) {
      id = id.replace(/-[^-]+$/, "");
      target = document.getElementById(`${id}-`) || document.getElementById(id);
    }
    if (!target) return;
    for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  // After the browser has looked for the anchor itself.
  window.addEventListener("load", () => setTimeout(reveal, 0));
})();

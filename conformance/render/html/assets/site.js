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
  const { prepare, search, plain, unpack } = window.attnspecSearch;
  let index = prepare([]);
  let prepared = Promise.resolve();
  window.attnspecNames = (data) => (prepared = unpack(data).then((rows) => (index = prepare(rows))));
  const names = () => load(`${root}_static/names.js`).then(() => prepared);
  const called = { entry: "gallery" };

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

  // The part of a text around the first word of the query.
  function excerpt(one, query) {
    const word = plain(query).split(" ").find((each) => each.length > 2 && one.text.toLowerCase().includes(each));
    const at = word ? one.text.toLowerCase().indexOf(word) : 0;
    const from = at < 90 ? 0 : one.text.indexOf(" ", at - 80) + 1;
    const part = one.text.slice(from, from + 220);
    return (from ? "… " : "") + (from + 220 < one.text.length ? `${part.slice(0, part.lastIndexOf(" "))} …` : part);
  }

  // Suggestions while one types, as a combobox.
  document.querySelectorAll('[role="search"] input[name="q"]').forEach((input, place) => {
    // A folder of results alone has no page that searches the text of all pages.
    const whole = input.form.hasAttribute("action");
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
    const go = (address) => (location.href = root + address);
    const option = (li, place, address) => {
      li.id = `${list.id}-${place}`;
      li.setAttribute("role", "option");
      li.setAttribute("aria-selected", "false");
      li.addEventListener("mousedown", (event) => {
        event.preventDefault();
        go(address);
      });
      return li;
    };
    const show = () => {
      const query = input.value.trim();
      const { found, meant, absent } = search(index, query, 10);
      const all = `search.html?q=${encodeURIComponent(meant || query)}`;
      chosen = -1;
      hits = found.map((one) => one.address);
      const rows = found.map((one, place) => option(item(one, "span"), place, one.address));
      if (query.length > 1 && (!found.length || meant || absent)) {
        const li = document.createElement("li");
        li.className = "none";
        li.textContent = absent ? `There is no rule ${absent}.` : meant ? `These match “${meant}”.` : `Nothing matches “${query}”.`;
        rows.push(whole ? option(li, found.length, all) : li);
        if (whole) hits.push(all);
      }
      list.replaceChildren(...rows);
      list.hidden = !rows.length;
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
    input.addEventListener("focus", names);
    input.addEventListener("input", () => names().then(show));
    input.addEventListener("blur", hide);
    input.form.addEventListener("submit", (event) => {
      if (whole) return;
      event.preventDefault();
      if (hits.length) go(hits[0]);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      if (list.hidden) return;
      if (event.key === "ArrowDown") choose(chosen + 1);
      else if (event.key === "ArrowUp") choose(chosen < 0 ? hits.length - 1 : chosen - 1);
      else if (event.key === "Enter" && chosen >= 0) go(hits[chosen]);
      else return;
      event.preventDefault();
    });
  });

  // The page of the search.
  const results = document.getElementById("search-results");
  const asked = new URLSearchParams(location.search).get("q");
  if (results && asked) {
    document.querySelectorAll('[role="search"] input[name="q"]').forEach((input) => (input.value = asked));
    names().then(() => {
      const { found, meant, absent } = search(index, asked, 40);
      const part = document.createElement("section");
      part.className = "hits";
      const head = document.createElement("h2");
      head.textContent = absent ? `There is no rule ${absent}${found.length ? ". Names like it" : ""}` : meant ? `Matches of “${meant}”` : found.length ? `Matches of “${asked}”` : `Nothing matches “${asked}”`;
      const list = document.createElement("ul");
      list.className = "names";
      for (const one of found) {
        const li = item(one, "a");
        if (one.text) {
          const text = document.createElement("p");
          text.textContent = excerpt(one, meant || asked);
          li.append(text);
        }
        list.append(li);
      }
      part.append(head, list);
      if (!found.length) {
        const help = document.createElement("p");
        help.textContent = "Try one word of the subject, the id of a rule, an argument of any library, or the name of a library.";
        part.append(help);
      }
      results.before(part);
    });
  }

  // Copies. A vector in other formats is a script of its own, loaded when it is asked for.
  const cases = new Map();
  window.attnspecCase = (id, data) => cases.set(id, unpack(data));

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

  const status = document.createElement("div");
  status.setAttribute("role", "status");
  status.className = "visually-hidden";
  document.body.append(status);

  function tell(button, text) {
    const before = button.textContent;
    button.textContent = text;
    status.textContent = text;
    setTimeout(() => (button.textContent = before), 1200);
  }

  // The dtype that a vector is copied in, and in which the allowed error of each element is shown.
  const dtypeOf = (id) => document.querySelector(`select[data-dtype="${id}"]`);
  const textsOf = (id) => load(`${root}_static/vectors/${id}.js`)
      .then(() => cases.get(id))
      .then((texts) => texts[dtypeOf(id).value]);

  document.querySelectorAll("button[data-case]").forEach((button) => {
    button.addEventListener("click", () => {
      const { case: id, format } = button.dataset;
      textsOf(id)
        .then((texts) => copied(texts[format]))
        .then(() => tell(button, "copied"))
        .catch(() => tell(button, "not copied"));
    });
  });

  document.querySelectorAll("details[data-allowed]").forEach((part) => {
    const id = part.dataset.allowed;
    part.querySelector("pre").tabIndex = 0; // it may scroll
    const show = () => {
      if (part.open) textsOf(id).then((texts) => (part.querySelector("pre").textContent = `in ${dtypeOf(id).value}\n\n${texts.allowed}`));
    };
    part.addEventListener("toggle", show);
    dtypeOf(id).addEventListener("change", show);
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

  // Tables and wide pictures may scroll, and the keyboard must reach them.
  document.querySelectorAll(".table-wrapper").forEach((table) => (table.tabIndex = 0));
  document.querySelectorAll('p > img[src$=".svg"]').forEach((picture) => {
    picture.parentElement.classList.add("picture");
    picture.parentElement.tabIndex = 0;
  });

  // The text by which a row is filtered. The names of threads are not part of it.
  function filtered(row) {
    const copy = row.cloneNode(true);
    copy.querySelectorAll(".threads").forEach((part) => part.remove());
    return copy.textContent.toLowerCase();
  }

  // Tables with a filter. The text of the filter is kept in the address.
  document.querySelectorAll("input[data-filter]").forEach((input) => {
    const rows = [...document.querySelectorAll(`table.${input.dataset.filter} tbody tr`)].map((row) => [row, filtered(row)]);
    const choice = document.querySelector(`select[data-choice="${input.dataset.filter}"]`);
    const count = input.parentElement.querySelector("output");
    const filter = () => {
      const words = input.value.toLowerCase().split(/\s+/);
      const of = choice ? choice.value.toLowerCase() : "";
      let shown = 0;
      for (const [row, text] of rows) {
        row.hidden = !words.every((word) => text.includes(word)) || !text.includes(of);
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
      document.querySelectorAll(`table.${input.dataset.filter}`).forEach((table) => {
        const empty = !table.querySelector("tbody tr:not([hidden])");
        (table.closest("section") || table).hidden = empty && !!table.closest("section section");
      });
    };
    choice?.addEventListener("change", filter);
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

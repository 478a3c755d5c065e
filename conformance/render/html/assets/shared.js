// Data, addresses and texts that all pages of results share. No page loads anything from elsewhere.
"use strict";

const attnspec = (() => {
  const data = {};
  const waiting = {};
  const root = document.querySelector("[data-root]").dataset.root;

  // The files in `data/` call this, because a page that is opened as a file cannot fetch them.
  function put(name, value) {
    data[name] = value;
    (waiting[name] || []).forEach((resolve) => resolve(value));
    delete waiting[name];
  }

  function load(name) {
    if (name in data) return Promise.resolve(data[name]);
    return new Promise((resolve, reject) => {
      (waiting[name] = waiting[name] || []).push(resolve);
      const address = `${root}data/${name}.js`;
      if (waiting[name].length > 1 || document.querySelector(`script[src="${CSS.escape(address)}"]`)) return;
      const script = document.createElement("script");
      script.src = address;
      script.onerror = () => {
        delete waiting[name];
        reject(new Error(`${address} cannot be read`));
      };
      document.head.append(script);
    });
  }

  const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

  function esc(text) {
    return String(text).replace(/[&<>"']/g, (letter) => ESCAPES[letter]);
  }

  // An address may be typed by hand, with a % that begins no code.
  function decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  }

  // The state of a page is the part of its address after `#`, so that a view can be sent.
  function readState() {
    const text = decoded(location.hash.slice(1));
    if (text && !text.includes("=")) return { at: text };
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  }

  function writeState(state) {
    const kept = Object.entries(state).filter(([, value]) => value !== "" && value !== undefined);
    const text = kept.map(([key, value]) => `${key}=${encodeURIComponent(value).replace(/%(2C|3A|2F)/g, unescape)}`);
    history.replaceState(null, "", text.length ? `#${text.join("&")}` : location.pathname);
  }

  // The names of the cases come in parts, each after the length of what it shares with the one before.
  const DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

  async function caseNames(parts) {
    const names = [];
    for (let part = 0; part < parts; part += 1) {
      let before = "";
      for (const text of await load(`cases-${part}`)) {
        before = before.slice(0, DIGITS.indexOf(text[0])) + text.slice(1);
        names.push(before);
      }
    }
    return names;
  }

  // The letter of each case of a column, and the rule that it is about.
  function casesOf(column) {
    const letters = [];
    for (const [, letter, number] of column.cases.matchAll(/([a-z.-])(\d*)/g)) {
      for (let n = Number(number || 1); n > 0; n -= 1) letters.push(letter);
    }
    const about = new Map();
    for (const [rule, steps] of Object.entries(column.about)) {
      let index = 0;
      for (const step of steps) about.set((index += step), rule);
    }
    return { letters, about };
  }

  function plain(title) {
    return title.replaceAll("`", "");
  }

  function at(address) {
    return /^[a-z]+:|^\//.test(address) ? address : root + address;
  }

  return { put, load, esc, decoded, readState, writeState, caseNames, casesOf, plain, at, root };
})();

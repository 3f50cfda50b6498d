// Elements are made from text alone: whatever a key or a URL holds is shown, and never read as markup.

import { said } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) { element.addEventListener(name.slice(2), value); element.listens = true; }
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((one) => one !== null && one !== undefined && one !== false).map(node));
  return element;
}

const node = (one) => (one instanceof Node ? one : document.createTextNode(String(one)));

// The element with these children instead of its own; those that are false or null are left out.
export const fill = (element, ...children) => { element.replaceChildren(); return filled(element, {}, children); };

// The same, but what is as it was stays: a click that has begun, a focus and a tooltip outlive it. Children with a key are the
// same where their keys are, and what they listen to depends on the key alone.
export function renew(element, ...children) {
  const made = filled(element.cloneNode(false), {}, children);
  if (pressed) later.set(element, made); else { later.delete(element); merge(element, made); }
}

// While a button of the mouse is down nothing moves, else the click would be on nothing. A button that is let go elsewhere
// is not heard of.
const PRESSED_MS = 5000;
let pressed = null;
const later = new Map();
document.addEventListener("pointerdown", () => { clearTimeout(pressed); pressed = setTimeout(released, PRESSED_MS); }, true);
const letGo = () => { if (pressed) { clearTimeout(pressed); pressed = setTimeout(released); } };
for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, letGo, true);
window.addEventListener("blur", letGo);

function released() {
  pressed = null;
  for (const [element, made] of later) merge(element, made);
  later.clear();
}

function merge(old, made) {
  if (old.isEqualNode(made)) return;
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const key = (one) => one.dataset?.key, after = [...made.childNodes], keys = new Set(after.map(key));
  for (const one of [...old.childNodes]) if (key(one) !== undefined && !keys.has(key(one))) one.remove();
  const keyed = new Map([...old.childNodes].filter((one) => key(one) !== undefined).map((one) => [key(one), one]));
  let here = old.firstChild;
  for (const one of after) {
    const was = key(one) === undefined ? here : keyed.get(key(one));
    if (was && key(was) === key(one) && alike(was, one)) {
      if (was === here) here = here.nextSibling; else old.insertBefore(was, here);
      merge(was, one);
    } else if (was && key(one) === undefined && key(was) === undefined) {
      here = here.nextSibling;
      if (!was.isEqualNode(one)) was.replaceWith(one);
    } else old.insertBefore(one, here);
  }
  while (here) { const next = here.nextSibling; here.remove(); here = next; }
}

const alike = (was, one) => was.nodeType === 1 && one.nodeType === 1 && was.nodeName === one.nodeName && (one.dataset?.key !== undefined || (!was.listens && !one.listens));

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function picture(width, height, label, ...children) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
}

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), ...children);

export function notice(error, level = "bad") {
  return h("div", { class: `notice ${level}`, role: "alert" }, h("h2", {}, error.title), h("p", {}, error.text));
}

// A button that does one thing at a time, and says what failed.
export function action(text, work) {
  const failed = h("div", {});
  let works = false;
  const button = h("button", { type: "button", onclick: async () => {
    if (works) return;
    works = true;
    button.setAttribute("aria-busy", "true");
    try { await work(); fill(failed); } catch (error) { if (!error.said) console.error(error); fill(failed, notice(said(error))); }
    works = false;
    button.removeAttribute("aria-busy");
  } }, text);
  return [button, failed];
}

// A table whose rows can be picked, by mouse and by keyboard. columns: {name, kind, cell(row)}.
// With key(row), rows are renewed by it.
export function table(columns, rows, { pick, label, rowClass, selected, key } = {}) {
  const body = rows.map((row) => {
    const cells = columns.map((one) => h("td", { class: one.kind ?? null }, one.cell(row)));
    const chosen = pick && {
      tabindex: 0,
      "aria-selected": String(selected?.(row) ?? false),
      onclick: (event) => { if (!event.target.closest("a, button, input")) pick(row, event); },
      onkeydown: (event) => { if (event.key === "Enter" && event.target === event.currentTarget) pick(row, event); },
    };
    return h("tr", { class: [pick && "pick", rowClass?.(row)].filter(Boolean).join(" ") || null, "data-key": key?.(row) ?? null, ...chosen }, cells);
  });
  const head = columns.map((one) => h("th", { scope: "col", class: one.kind === "num" ? "num" : null, "aria-sort": one.sorted ?? null }, one.head ?? one.name));
  // What scrolls is reached by the keyboard; lines that can be picked are already.
  const reached = pick ? {} : { tabindex: 0, role: "group", "aria-label": label ?? "table" };
  return h("div", { class: "scroll", ...reached }, h("table", { "aria-label": label ?? null }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

// Text as it is: what cannot be seen is written out, a text in another direction turns none beside it round, and of a long one
// the beginning is shown.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]|^[ \u00a0]+|[ \u00a0]+$/g;
const NAMES = { "\n": "\\n", "\t": "\\t", "\r": "\\r", " ": "␣" };
const escaped = (one) => NAMES[one] ?? `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`;

export const visible = (text) => text.replace(UNSEEN, (found) => Array.from(found, escaped).join(""));

export function plain(value, most = document.documentElement.clientWidth > 720 ? 160 : 80) {
  const letters = Array.from(value.slice(0, 2 * most + 2)), long = letters.length > most;
  const text = long ? letters.slice(0, most).join("") : value, parts = [];
  let from = 0;
  for (const found of text.matchAll(UNSEEN)) {
    parts.push(text.slice(from, found.index), h("span", { class: "unseen" }, Array.from(found[0], escaped).join("")));
    from = found.index + found[0].length;
  }
  return h("bdi", {}, parts, text.slice(from), long && h("span", { class: "soft small" }, `… ${value.length.toLocaleString("en-US")} letters`));
}

export const words = (pairs) => h("dl", { class: "words" }, pairs.flatMap(({ name, text }) => [h("dt", {}, name), h("dd", {}, text)]));
// The width of a picture in pixels, so that its text is as large as the text beside it.
export const room = (most, columns = 1) => Math.max(240, Math.min(most, (Math.min(document.documentElement.clientWidth, 1360) - 50) / (document.documentElement.clientWidth > 900 ? columns : 1) - 40));

export const figure = (name, value, unit, wide = false) => h("div", { class: `figure${wide ? " wide" : ""}` }, h("dt", {}, name), h("dd", {}, value, unit && h("span", { class: "unit" }, unit)));

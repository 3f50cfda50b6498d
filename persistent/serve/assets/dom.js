// Elements are made from text alone: whatever a key or a URL holds is shown, and never read as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((one) => one !== null && one !== undefined && one !== false).map(node));
  return element;
}

const node = (one) => (one instanceof Node ? one : document.createTextNode(String(one)));

// The element with these children instead of its own; those that are false or null are left out.
export const fill = (element, ...children) => { element.replaceChildren(); return filled(element, {}, children); };

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function picture(width, height, label, ...children) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
}

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), ...children);

export function notice(error, level = "bad") {
  return h("div", { class: `notice ${level}`, role: "alert" }, h("h2", {}, error.title), h("p", {}, error.text));
}

// A table whose rows can be picked, by mouse and by keyboard. columns: {name, kind, cell(row)}.
export function table(columns, rows, { pick, label, rowClass, selected } = {}) {
  const body = rows.map((row, place) => {
    const cells = columns.map((one) => h("td", { class: one.kind ?? null }, one.cell(row)));
    const chosen = pick && {
      tabindex: 0,
      "aria-selected": String(selected?.(row) ?? false),
      onclick: (event) => { if (!event.target.closest("a, button, input")) pick(row, event); },
      onkeydown: (event) => { if (event.key === "Enter" && event.target === event.currentTarget) pick(row, event); },
    };
    return h("tr", { class: [pick && "pick", rowClass?.(row)].filter(Boolean).join(" ") || null, "data-place": place, ...chosen }, cells);
  });
  const head = columns.map((one) => h("th", { scope: "col", class: one.kind === "num" ? "num" : null, "aria-sort": one.sorted ?? null }, one.head ?? one.name));
  return h("div", { class: "scroll" }, h("table", { "aria-label": label ?? null }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export const words = (pairs) => h("dl", { class: "words" }, pairs.flatMap(({ name, text }) => [h("dt", {}, name), h("dd", {}, text)]));
// The width of a picture in pixels, so that its text is as large as the text beside it.
export const room = (most, columns = 1) => Math.max(240, Math.min(most, (Math.min(document.documentElement.clientWidth, 1360) - 50) / (document.documentElement.clientWidth > 900 ? columns : 1) - 40));

export const figure = (name, value, unit, wide = false) => h("div", { class: `figure${wide ? " wide" : ""}` }, h("dt", {}, name), h("dd", {}, value, unit && h("span", { class: "unit" }, unit)));

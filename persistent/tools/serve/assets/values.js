// Values of a state as cells: exact text, and pictures of histograms, quantiles and counts.

import { h, picture, plain, s, table, visible } from "./dom.js";

const W = 150, H = 34, SHOWN = 3;

export function rows(found, options = {}) {
  const columns = found.columns.map((column, place) => ({
    name: column.name,
    kind: { number: "num", time: "time", list: "drawn", struct: "drawn" }[column.kind] ?? "text",
    head: options.head?.(column), sorted: options.sorted?.(column),
    cell: (row) => options.cell?.(column, row[place], row) ?? value(column, row[place]),
  }));
  return table(columns, found.rows, { pick: options.pick, label: options.label ?? "rows" });
}

export function value(column, text) {
  if (text === null) return h("span", { class: "null" }, "null");
  if (text === "") return h("span", { class: "null" }, "empty text");
  if (column.kind === "number") return grouped(text);
  if (column.kind === "list" || column.kind === "struct") return drawn(column, text) ?? h("code", {}, plain(text));
  return column.kind === "text" ? plain(text) : text;
}

// Exact: the digits are grouped as text, never as a number.
function grouped(text) {
  const found = /^(-?)(\d+)(\.\d+)?$/.exec(text);
  if (!found) return text;
  const part = found[3] && found[3].length > 6 ? h("span", { title: text }, `${found[2].replace(/\B(?=(\d{3})+$)/g, ",")}${found[3].slice(0, 5)}…`) : null;
  return part ?? `${found[1]}${found[2].replace(/\B(?=(\d{3})+$)/g, ",")}${found[3] ?? ""}`;
}

function drawn(column, text) {
  let found;
  try { found = JSON.parse(exact(text)); } catch { return null; }
  if (Array.isArray(found)) {
    if (!found.length) return h("span", { class: "null" }, "empty");
    if (found.every((one) => one && typeof one === "object" && "lower" in one && "count" in one)) return histogram(found, text);
    if (found.every((one) => one && typeof one === "object" && "value" in one && "count" in one)) return counts(found.map((one) => [one.value, one.count]).sort((a, b) => b[1] - a[1]), text);
    if (found.every((one) => one && typeof one === "object" && "by" in one)) return counts(found.map((one) => [one.value, one.by]), text);
    if (found.length > 2 && found.every((one) => typeof one === "number")) return line(found, text);
    return null;
  }
  if (found && typeof found === "object") {
    const names = Object.keys(found);
    if (names.length > 1 && names.every((name) => /^p\d+$/.test(name))) return quantiles(found, text);
    if (names.length && names.every((name) => typeof found[name] === "number" || found[name] === null)) return h("span", { class: "small", title: text }, names.map((name, place) => [place > 0 && " · ", h("span", { class: "soft" }, plain(name), " "), counted(found[name])]));
  }
  return null;
}

// JSON whose long integers are texts, as a browser would round them.
const exact = (text) => text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (found) => (/^-?\d{16,}$/.test(found) ? `"${found}"` : found));
// A count is exact; another number has six digits, and all of them in the title.
const counted = (one) => (/^-?\d+$/.test(one) ? grouped(String(one)) : typeof one === "number" ? one.toLocaleString("en-US", { maximumSignificantDigits: 6 }) : String(one));
export const short = (one) => (typeof one === "number" ? one.toLocaleString("en-US", { maximumSignificantDigits: 3 }) : String(one));
const bound = (one) => (one === null || one === "-inf" || one === "inf" ? "∞" : short(Number(one)));

function histogram(parts, text) {
  const most = Math.max(1, ...parts.map((one) => one.count));
  const wide = W / parts.length;
  const bars = parts.map((one, place) => s("rect", { class: "processed", x: place * wide + 0.5, width: Math.max(wide - 1, 1), y: 22 - (20 * one.count) / most, height: Math.max((20 * one.count) / most, one.count ? 0.7 : 0) }, s("title", {}, `${bound(one.lower)} to ${bound(one.upper)}: ${one.count}`)));
  return picture(W, H, text, s("title", {}, text), bars, s("line", { class: "axis", x1: 0, x2: W, y1: 22.5, y2: 22.5 }), s("text", { x: 0, y: H }, bound(parts[0].lower)), s("text", { x: W, y: H, "text-anchor": "end" }, bound(parts.at(-1).upper)));
}

function counts(pairs, text) {
  const most = Math.max(1e-9, ...pairs.map(([, count]) => Number(count)));
  return h("div", { title: text }, picture(W, 15 * Math.min(pairs.length, SHOWN), text, pairs.slice(0, SHOWN).map(([name, count], place) => [
    s("rect", { class: "processed faint", x: 0, y: place * 15 + 1, height: 13, width: Math.max(1, (W * Number(count)) / most) }),
    s("text", { class: "ink", x: 3, y: place * 15 + 11 }, label(String(name), counted(count))), s("text", { x: W, y: place * 15 + 11, "text-anchor": "end" }, counted(count))])),
    pairs.length > SHOWN && h("span", { class: "small soft" }, `and ${pairs.length - SHOWN} more`));
}

// As much of a name as there is room for beside its count.
function label(name, count) {
  const letters = Array.from(visible(name)), most = Math.max(4, 20 - count.length);
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
}

// From the first quantile to the last on a scale of its own; the median is marked.
function quantiles(found, text) {
  const names = Object.keys(found);
  const values = names.map((name) => Number(found[name]));
  const low = Math.min(...values), wide = Math.max(...values) - low || 1;
  const x = (one) => 4 + ((W - 8) * (one - low)) / wide;
  return picture(W, H, text, s("title", {}, text), s("line", { class: "axis", x1: 4, x2: W - 4, y1: 9, y2: 9 }), s("rect", { class: "processed faint", x: x(values[0]), y: 4, height: 10, width: Math.max(1, x(values.at(-2)) - x(values[0])) }),
    values.map((one, place) => s("rect", { class: "processed", x: x(one) - (place ? 0.75 : 1.5), y: 3, width: place ? 1.5 : 3, height: 12 }, s("title", {}, `${names[place]}: ${one}`))),
    s("text", { x: 0, y: 29 }, `${names[0]} ${short(values[0])}`), s("text", { x: W, y: 29, "text-anchor": "end" }, `${names.at(-2)} ${short(values.at(-2))}`));
}

function line(values, text) {
  const low = Math.min(...values), tall = Math.max(...values) - low || 1;
  const points = values.map((one, place) => `${((place * W) / (values.length - 1)).toFixed(1)},${(20 - (17 * (one - low)) / tall).toFixed(1)}`).join(" L");
  return picture(W, 24, text, s("title", {}, text), s("path", { class: "stroke", d: `M${points}` }));
}

// The graph: nodes in layers, by the edges between them; each node is a card that leads to the view that tells more.

import { h, renew, s } from "./dom.js";
import { fresh } from "./fresh.js";
import * as format from "./format.js";

const WRITTEN = { number: format.number, rate: format.rate, bytes: format.bytes, clock: format.clock, span: format.span, text: (value) => value };
const SMALL = 900;

export async function graphView(context) {
  const edges = s("svg", { "aria-hidden": "true" }), box = h("div", { class: "graph" }, edges), foot = h("p", { class: "small soft" });
  let data = null;
  const redraw = () => data && lines(edges, box, data.edges);
  const shown = fresh(context, () => context.get("graph"), (found) => {
    // A server that has many manifests to read knows more when it is asked again.
    if (found.known > (data?.known ?? 0)) shown.changed();
    data = found;
    const places = layers(found.nodes, found.edges);
    renew(box, edges, ...places.map((layer, place) => h("div", { class: "layer", "data-key": `layer ${place}` }, layer.map((one) => node(context, one, found)))));
    renew(foot, `As checkpoint ${format.number(found.id)} says, whether the job runs or not. `, `${found.steps} `, "Arrow keys go along the graph, Enter opens.");
    if (!box.isConnected) context.put(h("section", { class: "card" }, box), foot);
    redraw();
  });
  await shown.first();
  const seen = new ResizeObserver(redraw);
  seen.observe(box);
  box.addEventListener("keydown", (event) => walk(event, box, data));
  const timer = setInterval(() => { if (!document.hidden) shown.changed(); }, 5000);
  return { changed: shown.changed, leave: () => { clearInterval(timer); seen.disconnect(); } };
}

// The nodes by layer: each behind all that lead to it.
export function layers(nodes, edges) {
  const depth = new Map(nodes.map((one) => [one.id, 0]));
  for (let turn = 0; turn < nodes.length; turn += 1) {
    for (const [from, to] of edges) if (depth.has(from) && depth.has(to)) depth.set(to, Math.max(depth.get(to), depth.get(from) + 1));
  }
  const found = [];
  for (const one of nodes) (found[depth.get(one.id)] ??= []).push(one);
  return found.filter(Boolean);
}

const id = (name) => `node-${encodeURIComponent(name)}`;

function node(context, one, data) {
  const name = (other) => data.nodes.find((found) => found.id === other)?.title ?? other;
  const from = data.edges.filter(([, to]) => to === one.id).map(([before]) => name(before));
  const to = data.edges.filter(([before]) => before === one.id).map(([, after]) => name(after));
  const runs = [from.length > 0 && `after ${from.join(", ")}`, to.length > 0 && `before ${to.join(", ")}`].filter(Boolean).join("; ");
  return h("section", { class: `node ${one.kind}`, "data-key": one.id, id: id(one.id) },
    h("h2", {}, h("a", { href: context.link(one.view, one.query) }, one.title)),
    h("p", { class: "soft" }, one.says, runs && h("span", { class: "hidden" }, `, ${runs}`)),
    one.tags.length > 0 && h("p", {}, one.tags.map(tag)),
    h("dl", { class: "facts" }, one.facts.map(fact)),
    one.parts?.length > 0 && h("ul", {}, one.parts.map(part), one.parts_more > 0 && h("li", { class: "soft" }, `and ${format.count(one.parts_more, "partition")} more`)));
}

const tag = (one) => h("span", { class: `tag ${one.level}` }, one.text);

function fact(one) {
  const value = one.form === "unknown" ? `unknown: ${one.why}` : WRITTEN[one.form](one.value);
  return h("div", {}, h("dt", {}, one.name), h("dd", { class: one.form === "unknown" ? "unknown" : null }, value));
}

function part(one) {
  const reached = one.largest === null ? "no record yet" : `up to ${format.utc(one.largest)}`;
  return h("li", { "data-key": one.name }, h("b", {}, one.name), " ", one.tags.map(tag), h("br"), h("span", { class: "soft" }, [one.position && `next: ${one.position}`, reached, one.rate !== null && `${format.rate(one.rate)} rows a second`].filter(Boolean).join(" · ")));
}

// -- the edges -------------------------------------------------------------------------------------------------------

// From card to card: across, where the layers stand side by side; else down a rail before them.
function lines(svg, box, edges) {
  const whole = box.getBoundingClientRect(), flat = window.innerWidth > SMALL;
  svg.setAttribute("width", box.scrollWidth);
  svg.setAttribute("height", box.scrollHeight);
  svg.setAttribute("viewBox", `0 0 ${box.scrollWidth} ${box.scrollHeight}`);
  const at = (name) => {
    const card = document.getElementById(id(name)), found = card?.getBoundingClientRect();
    return found && { layer: [...box.children].indexOf(card.parentNode) - 1, left: found.left - whole.left + box.scrollLeft, right: found.right - whole.left + box.scrollLeft, top: found.top - whole.top, bottom: found.bottom - whole.top };
  };
  renew(svg, ...edges.flatMap(([from, to]) => {
    const a = at(from), b = at(to);
    if (!a || !b) return [];
    const aside = document.getElementById(id(to)).classList.contains("aside") ? " aside" : "";
    return flat ? across(a, b, aside) : down(a, b, aside);
  }));
}

const round = (value) => Math.round(value * 10) / 10;
const tip = (x, y, aside) => s("path", { class: `head-of${aside}`, d: `M${round(x)},${round(y)} l-7,-4 v8 z` });

function across(a, b, aside) {
  const y0 = (a.top + a.bottom) / 2, y1 = (b.top + b.bottom) / 2, bend = (b.left - a.right) / 2;
  return [s("path", { class: `edge${aside}`, d: `M${round(a.right)},${round(y0)} C${round(a.right + bend)},${round(y0)} ${round(b.left - bend)},${round(y1)} ${round(b.left - 6)},${round(y1)}` }), tip(b.left, y1, aside)];
}

function down(a, b, aside) {
  const y0 = a.top + 20, y1 = b.top + 20, rail = a.left - 9 - 5 * a.layer - (aside ? 2.5 : 0);
  return [s("path", { class: `edge${aside}`, d: `M${round(a.left)},${round(y0)} H${round(rail)} V${round(y1)} H${round(b.left - 6)}` }), tip(b.left, y1, aside)];
}

// -- the keyboard ----------------------------------------------------------------------------------------------------

// Left and right go along an edge, up and down within a layer.
function walk(event, box, data) {
  const here = event.target.closest(".node");
  if (!here || !data || !event.key.startsWith("Arrow")) return;
  const name = here.dataset.key, [step, along] = { ArrowLeft: [-1, true], ArrowRight: [1, true], ArrowUp: [-1, false], ArrowDown: [1, false] }[event.key];
  const layer = [...here.parentNode.children];
  const next = along ? document.getElementById(id(step < 0 ? data.edges.find(([, to]) => to === name)?.[0] : data.edges.find(([from]) => from === name)?.[1])) : layer[layer.indexOf(here) + step];
  next?.querySelector("a").focus();
  event.preventDefault();
  event.stopPropagation();
}

// The storage: runs by key group and checkpoint, those that one key needs, and the verification of every byte.

import { address } from "./api.js";
import { fill, figure, h, notice, picture, room, s, table } from "./dom.js";
import * as format from "./format.js";

const LEFT = 84, BOTTOM = 26;

export async function storageView(context) {
  const asked = { at: context.query.get("at"), key: context.query.get("key") };
  let found;
  try {
    found = await context.get("storage", asked);
  } catch (error) {
    if (!asked.key) throw error;
    context.put(notice(error.said ?? { title: "Not shown", text: String(error) }, "warn"), h("p", {}, h("a", { href: context.link("storage", { at: asked.at }) }, "All runs")));
    return null;
  }
  const marked = h("div", {}), verifying = verifyCard(context);
  context.put(h("section", { class: "card" }, h("dl", { class: "figures" },
    figure("runs", format.number(found.count)), figure("bytes in runs", format.bytes(found.bytes)), figure("manifests", format.number(found.manifests)),
    figure("this manifest", format.bytes(found.manifest_bytes)), found.needed && figure("runs this key needs", format.number(found.needed.runs.length), `of ${format.number(found.count)}`))),
  h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, `Runs of checkpoint ${format.number(found.id)}`), h("p", { class: "small soft" }, "across: key groups; up: the checkpoints whose deltas a run sums; dashed: what no longer counts")), marked, map(found), keyForm(context, found, asked)),
  verifying.card, list(found));
  return { leave: verifying.leave, changed: (line) => { if (!asked.at && !line.error && line.checkpoint.id !== found.id) fill(marked, h("p", { class: "small soft" }, `Checkpoint ${format.number(line.checkpoint.id)} is newer. `, h("button", { class: "link", onclick: () => window.dispatchEvent(new HashChangeEvent("hashchange")) }, "Show it"))); } };
}

// Each run a row, ordered by age, so that none hides another: a long row is a folded one.
function map(found) {
  const runs = [...found.runs].sort((a, b) => (a.kind !== "state") - (b.kind !== "state") || b.last - a.last || b.first - a.first || a.low - b.low).slice(0, 150);
  if (!runs.length) return h("p", { class: "empty" }, "No run yet: nothing was counted, or every window is closed.");
  const most = Math.max(...runs.map((one) => one.bytes)), W = room(1300);
  const tall = (one) => Math.max(5, Math.min(26, 26 * Math.sqrt(one.bytes / most)));
  const x = (group) => LEFT + ((W - LEFT) * group) / found.groups;
  const needed = new Set(found.needed?.runs ?? []);
  let y = 4;
  const bars = runs.map((one) => {
    const high = tall(one);
    const text = `${one.of}: ${format.number(one.rows_left)} rows, ${format.bytes(one.bytes)}\ncheckpoints ${one.first} to ${one.last}, key groups ${one.low} to ${one.high - 1}\n${one.name}`;
    const made = s("g", {}, s("title", {}, text),
      s("text", { x: LEFT - 8, y: y + high / 2 + 4, "text-anchor": "end" }, one.kind === "state" ? (one.first === one.last ? format.number(one.last) : `${format.number(one.first)}–${format.number(one.last)}`) : one.kind),
      one.start < one.low && s("rect", { class: "gone", x: x(one.start), y, width: x(one.low) - x(one.start), height: high }),
      s("rect", { class: `${needed.has(one.name) ? "needed" : one.kind} hit${needed.size && !needed.has(one.name) ? " faint" : ""}`, x: x(one.low), y, width: Math.max(1, x(one.high) - x(one.low) - 1), height: high, rx: 1.5 }));
    y += Math.max(high, 13) + 4;
    return made;
  });
  const base = y + 4;
  const ticks = (W > 500 ? [0, 256, 512, 768, 1023] : [0, 512, 1023]).map((group) => s("text", { x: x(group), y: base + 16, "text-anchor": group === 0 ? "start" : group === 1023 ? "end" : "middle" }, String(group)));
  const guide = found.needed && s("line", { class: "guide", x1: x(found.needed.group + 0.5), x2: x(found.needed.group + 0.5), y1: 0, y2: base });
  return picture(W, base + BOTTOM, `${format.count(runs.length, "run")} by key group`, bars, s("line", { class: "axis", x1: LEFT, x2: W, y1: base, y2: base }), ticks, guide);
}

function keyForm(context, found, asked) {
  if (!found.key.length) return null;
  const given = asked.key ? [JSON.parse(asked.key)].flat() : [];
  const fields = found.key.map((name, place) => h("input", { type: place ? "text" : "search", placeholder: name, "aria-label": name, value: given[place] ?? "" }));
  const submit = (event) => { event.preventDefault(); context.go("storage", { at: asked.at, key: JSON.stringify(fields.map((one) => one.value)) }); };
  return [h("form", { class: "bar", onsubmit: submit }, h("span", { class: "soft small" }, "Which runs does a key need?"), fields, h("button", {}, "Find"), asked.key && h("button", { type: "button", onclick: () => context.go("storage", { at: asked.at }) }, "All runs")),
    found.needed && h("p", { class: "small soft" }, `The key is in key group ${found.needed.group}: reading it opens ${found.needed.runs.length} of ${format.count(found.count, "run")}, and in each only the slice of that group.`)];
}

function list(found) {
  const columns = [
    { name: "run", kind: "text", cell: (one) => h("code", { title: one.name }, format.run(one.name)) }, { name: "of", kind: "text", cell: (one) => one.of },
    { name: "rows", kind: "num", cell: (one) => format.number(one.rows_left) }, { name: "size", kind: "num", cell: (one) => format.bytes(one.bytes) },
    { name: "key groups", kind: "num", cell: (one) => `${one.low} – ${one.high - 1}` }, { name: "checkpoints", kind: "num", cell: (one) => `${format.number(one.first)} – ${format.number(one.last)}` },
    { name: "panes", kind: "time", cell: (one) => (one.pane_min === null ? "" : `${format.seconds(one.pane_min)} – ${format.seconds(one.pane_max).slice(11)}`) },
  ];
  return h("section", { class: "card" }, h("h2", {}, "Every run, the largest first"), table(columns, found.runs, { label: "runs" }), found.runs_more > 0 && h("p", { class: "small soft" }, `and ${format.number(found.runs_more)} smaller ones`));
}

// -- verification ----------------------------------------------------------------------------------------------------

function verifyCard(context) {
  const out = h("div", {});
  const button = h("button", { class: "main", onclick: start }, "Verify every byte");
  let events = null;
  function start() {
    button.disabled = true;
    const bar = h("progress", { max: 1 });
    const text = h("p", { class: "small soft" }, "Reading…");
    fill(out, bar, text);
    events = new EventSource(address(`${context.job}/verify`, {}));
    const over = () => { events.close(); button.disabled = false; };
    events.addEventListener("progress", (event) => {
      const { done, total } = JSON.parse(event.data);
      if (total) { bar.value = done / total; fill(text, `${format.bytes(done)} of ${format.bytes(total)}`); }
    });
    events.addEventListener("verified", (event) => { over(); fill(out, ...result(JSON.parse(event.data))); });
    events.onerror = () => { over(); fill(out, notice({ title: "Not verified", text: "The server ended the verification, or another page verifies this checkpoint: try again." }, "warn")); };
  }
  const card = h("section", { class: "card" }, h("div", { class: "head" }, h("div", {}, h("h2", {}, "Verification"), h("p", { class: "small soft" }, "Reads every file that a kept checkpoint names, and checks it against every law. It changes nothing; the job can run meanwhile.")), button), out);
  return { card, leave: () => events?.close() };
}

function result(found) {
  if (found.error) return [notice(found.error)];
  const columns = [
    { name: "checked", cell: (one) => one.name }, { name: "number", kind: "num", cell: (one) => format.number(one.checked) }, { name: "rows", kind: "num", cell: (one) => format.number(one.rows) },
    { name: "size", kind: "num", cell: (one) => format.bytes(one.bytes) }, { name: "faults", kind: "num", cell: (one) => (one.faults ? h("span", { class: "tag bad" }, format.number(one.faults)) : "0") },
  ];
  const faults = found.findings.map((one) => h("p", {}, h("span", { class: `tag ${one.severity === "fault" ? "bad" : "warn"}` }, one.severity), h("code", {}, one.place), ` ${one.text}`));
  return [found.ok ? h("p", {}, h("span", { class: "tag good" }, "✓ verifies"), `Checkpoint ${found.newest_good} is whole, to the last byte.`) : notice({ title: "There are faults", text: found.verdict }), h("br"), table(columns, found.parts, { label: "checked" }), ...faults, found.findings_more > 0 && h("p", { class: "soft" }, `and ${found.findings_more} more`)].filter(Boolean);
}

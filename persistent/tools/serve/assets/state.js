// The state: browse, search, sort, go back in time, download; and why a row is what it is.

import { address } from "./api.js";
import { fill, card, figure, h, notice, plain, table } from "./dom.js";
import { rows as valueRows, value } from "./values.js";
import * as format from "./format.js";

const ROWS = 50, SEARCH_MS = 10000;
const ASKED = ["name", "at", "as_of", "find", "key", "window", "sort"];

export async function stateView(context) {
  const asked = Object.fromEntries(ASKED.map((name) => [name, context.query.get(name)]));
  const cursors = (context.query.get("pages") ?? "").split(",").filter(Boolean);
  let page;
  try {
    page = await searched(context, asked, await context.get("state", { ...asked, cursor: cursors.at(-1) }));
  } catch (error) {
    if (error.said?.kind === "pipeline") return shape(context, error.said);
    if (error.said && ["asked", "unknown", "other", "task"].includes(error.said.kind)) { context.put(notice(error.said, "warn"), h("p", {}, h("a", { href: context.link("state", { name: asked.name }) }, "The state as it is now"), " ", asked.name && h("a", { href: context.link("state", { at: asked.at, as_of: asked.as_of }) }, "Another state of the task"))); return null; }
    if (error.said?.kind === "corrupt") return damaged(context, asked, error.said);
    throw error;
  }
  const go = (changes, pages = []) => context.go("state", { ...asked, ...changes, pages: pages.join(",") });
  const detail = h("div", {});
  const pick = (row) => openRow(context, page, asked, row, detail);
  const marked = h("div", {}), start = page.columns.findIndex((one) => one.name === "window_start");
  context.put(h("section", { class: "card" }, await controls(context, page, asked, go)), h("section", { class: "card" }, header(page, asked, go), marked, omitted(page),
    page.rows.length ? valueRows(page, { pick, label: "rows of the state", head: (column) => sortable(column, asked, go), sorted: (column) => ({ [column.name]: "ascending", [`-${column.name}`]: "descending" })[asked.sort] ?? null, cell: (column, text, row) => windowCell(column, text, row[start] ?? null, asked, go) }) : empty(page, asked),
    pages(page, cursors, go)), detail);
  if (asked.key && page.rows.length) pick(page.rows[0]);
  return {
    changed(line) {
      if (asked.at || asked.as_of || line.error || line.checkpoint.id === page.id) return;
      fill(marked, h("p", { class: "small soft" }, `Checkpoint ${format.number(line.checkpoint.id)} is newer. `, h("button", { class: "link", onclick: () => window.dispatchEvent(new HashChangeEvent("hashchange")) }, "Show it")));
    },
    close: () => fill(detail, ),
  };
}

// The server searches for a moment at a time. The page asks it to go on until a page is full, or ten seconds are over.
async function searched(context, asked, page) {
  const until = Date.now() + SEARCH_MS, rows = page.rows;
  while (asked.find && !asked.sort && page.next !== null && rows.length < ROWS && Date.now() < until && context.current()) {
    context.put(h("section", { class: "card" }, h("p", { class: "waiting" }, "Searching for ", plain(asked.find, 60), `: ${format.number(rows.length)} found`), h("progress", { max: 1, value: page.progress, "aria-label": "share of the state that was searched" })),
      rows.length > 0 && h("section", { class: "card" }, valueRows({ ...page, rows }, { label: "rows found so far" })));
    page = await context.get("state", { ...asked, at: asked.as_of ? null : page.id, cursor: page.next, limit: ROWS - rows.length });
    rows.push(...page.rows);
  }
  return { ...page, rows };
}

async function controls(context, page, asked, go) {
  const bases = (await context.get("kept")).kept;
  const here = bases.findLastIndex(([id]) => id <= page.id);
  const label = h("span", { class: "small" }, `checkpoint ${format.number(page.id)}, clock ${format.clock(page.clock_ms)}`);
  const planned = ([id, ms]) => `checkpoint ${format.number(id)}, planned ${ms ? format.seconds(ms) : "at the beginning"}`;
  const slider = h("input", {
    type: "range", min: 0, max: Math.max(0, bases.length - 1), value: here < 0 ? bases.length - 1 : here, "aria-label": "checkpoint", disabled: bases.length < 2,
    oninput: (event) => fill(label, planned(bases[event.target.value])),
    onchange: (event) => { const one = bases[event.target.value]; go({ at: one === bases.at(-1) ? null : one[0], as_of: null }); },
  });
  const find = h("input", { type: "search", placeholder: `Search in ${page.key.join(", ") || "the state"}`, "aria-label": "search in the key", value: asked.find ?? "" });
  const asOf = h("input", { type: "text", placeholder: "as of, e.g. 2024-05-06 10:00Z", "aria-label": "as of a clock", value: asked.as_of ?? "" });
  const download = (form, text) => h("a", { href: address(`${context.job}/download`, { ...asked, sort: null, format: form }), download: "" }, text);
  return [
    page.names.length > 1 && h("div", { class: "bar" }, h("label", { class: "small soft", for: "of" }, "State"), h("select", { id: "of", onchange: (event) => go({ name: event.target.value, window: null, sort: null }) }, page.names.map((name) => h("option", { value: name, selected: name === page.name }, name)))),
    page.names.length > 1 && h("br"),
    h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); go({ find: find.value, as_of: asOf.value, at: asOf.value ? null : asked.at }); } },
      page.key.length > 0 && find, asOf, h("button", { class: "main" }, "Show"),
      ...["find", "key", "window", "as_of", "at", "sort"].filter((name) => asked[name]).map((name) => h("button", { type: "button", title: "remove", onclick: () => go({ [name]: null }) }, `${name.replace("_", " ")}: `, plain(asked[name], 60), " ✕")),
      h("details", { class: "menu" }, h("summary", {}, "Download"), h("div", {}, download("csv", "CSV"), download("jsonl", "JSON lines"), download("parquet", "Parquet")))),
    h("br"),
    h("div", { class: "slide" }, h("span", { class: "small soft" }, "Back in time"), slider, label),
  ];
}

function header(page, asked, go) {
  const about = asked.find || asked.key || asked.window ? "" : `, about ${format.count(page.rows_about, "row")} before they are summed up`;
  const time = page.as_of_ms !== null ? `as of ${format.utc(page.as_of_ms)}, from checkpoint ${format.number(page.id)}` : `at checkpoint ${format.number(page.id)}`;
  return h("div", { class: "head" }, h("h2", {}, `State ${page.names.length ? `${page.name} ` : ""}${time}`), h("p", { class: "small soft" }, `${page.window === "none" ? "no windows" : page.window}${page.time_to_live ? `, a key lives ${page.time_to_live} after its last message` : ""}${about}`));
}

// Of a sum that is too large, and of a task that fails to present it: the other rows are shown all the same.
function omitted(page) {
  if (!page.omitted) return null;
  return h("div", { class: "notice bad" }, h("h2", {}, `${format.count(page.omitted, "row")} of these ${page.omitted === 1 ? "has" : "have"} no result, and ${page.omitted === 1 ? "is" : "are"} left out`),
    page.omitted_first.map((text) => h("p", { class: "small" }, text)), page.omitted > page.omitted_first.length && h("p", { class: "small soft" }, `and ${format.number(page.omitted - page.omitted_first.length)} more`),
    h("p", { class: "small soft" }, "A run that publishes them stops, unless on_error=\"dead-letter\" sets them aside. Their parts are kept: look for such a key to see them."));
}

function sortable(column, asked, go) {
  if (column.kind === "list" || column.kind === "struct") return column.name;
  const next = asked.sort === `-${column.name}` ? column.name : asked.sort === column.name ? null : column.kind === "number" ? `-${column.name}` : column.name;
  const sign = { [column.name]: " ↑", [`-${column.name}`]: " ↓" }[asked.sort] ?? "";
  return h("button", { class: "sort", title: `${column.type}; sort`, onclick: () => go({ sort: asked.sort === column.name && column.kind === "number" ? null : next }) }, column.name, sign);
}

function windowCell(column, text, start, asked, go) {
  if (column.name === "window_end" && start !== null && text?.slice(0, 10) === start.slice(0, 10)) return h("span", { title: text }, text.slice(11));
  if (column.name !== "window_start" || text === null || asked.window) return null;
  return h("button", { class: "link", title: "only this window", onclick: () => go({ window: text }) }, text);
}

function empty(page, asked) {
  const closed = page.closed_ms ? ` Windows that end by ${format.clock(page.closed_ms)} are closed: their results are in the sink.` : "";
  if (page.progress < 1) return h("p", { class: "empty" }, "Nothing found so far.");
  return h("p", { class: "empty" }, `${asked.find || asked.key || asked.window ? "No row of the state is as asked." : "The state is empty."}${closed}`);
}

function pages(page, cursors, go) {
  const said = page.total !== undefined ? `${format.count(page.total, "row")} in all` : page.progress < 1 ? `${format.share(page.progress, 1)} of the key groups walked` : cursors.length ? "to the end" : page.rows.length === 1 ? "one row" : `${format.number(page.rows.length)} rows, all of them`;
  const next = page.next !== null && h("button", { onclick: () => go({ at: page.id }, [...cursors, page.next]) }, page.rows.length ? "Next page" : "Search on");
  return h("div", { class: "pages" }, cursors.length > 0 && h("button", { onclick: () => go({}, cursors.slice(0, -1)) }, "Page before"), next, h("span", { class: "small soft" }, said));
}

// -- why -------------------------------------------------------------------------------------------------------------

async function openRow(context, page, asked, row, detail) {
  const key = page.key.map((name) => row[page.columns.findIndex((one) => one.name === name)]);
  const place = page.columns.findIndex((one) => one.name === "window_start");
  const window = place >= 0 && !page.window.startsWith("session") ? row[place] : null;
  const box = h("section", { class: "card" }, h("p", { class: "waiting" }, "Reading the runs of this key…"));
  fill(detail, box);
  box.scrollIntoView({ block: "nearest" });
  try {
    if (!key.length) { fill(box, h("h2", {}, "Why is this row here?"), h("p", {}, "The task has no key: every record that was processed adds to this one sum.")); return; }
    fill(box, ...why(context, await context.get("why", { at: asked.as_of ? null : page.id, as_of: asked.as_of, key: JSON.stringify(key), window, name: asked.name }), key));
  } catch (error) {
    fill(box, notice(error.said ?? { title: "Not shown", text: String(error) }));
  }
}

function why(context, found, key) {
  const skip = new Set([...found.key, "window_end"]);
  const columns = found.columns.map((column, place) => ({ column, place })).filter(({ column }) => !skip.has(column.name));
  const lines = found.contributions.flatMap((one) => one.rows.map((row) => ({ one, row })));
  const cells = [
    { name: "checkpoints", kind: "num", cell: ({ one }) => one === null ? "together" : h("a", { href: context.link("timeline", { id: one.last }), title: one.run }, one.first === one.last ? format.number(one.last) : `${format.number(one.first)} – ${format.number(one.last)}`) },
    ...columns.map(({ column, place }) => ({ name: column.name, kind: { number: "num", time: "time", list: "drawn", struct: "drawn" }[column.kind] ?? "text", cell: ({ row }) => value(column, row[place]) })),
  ];
  const whole = lines.length > 1 ? found.rows.map((row) => ({ one: null, row })) : [];
  return [
    h("div", { class: "head" }, h("h2", {}, "Why is this row here? ", h("code", {}, key.map((one, place) => [place > 0 && ", ", one === null ? h("i", {}, "null") : plain(one, 400)]))), h("button", { onclick: () => context.go("storage", { key: JSON.stringify(key), at: found.id }) }, "Its runs in the storage")),
    h("p", { class: "soft small" }, `It is the sum of ${lines.length === 1 ? "one part" : `${lines.length} parts`}, each added by the checkpoints named, oldest first. The key is in key group ${found.group} of ${found.groups}; ${found.runs} of ${format.count(found.runs_all, "run")} ${found.runs === 1 ? "holds" : "hold"} that group.`),
    omitted(found), h("br"), table(cells, [...lines, ...whole], { label: "parts", rowClass: ({ one }) => (one === null ? "together" : null) }),
    found.time_to_live && h("p", { class: "soft small" }, `A key lives ${found.time_to_live} after its last message, and begins at zero when it comes back. A part that is over without the others is left out of the list, and counts where a later message joins it.`),
    found.final_ms ? h("p", { class: "soft small" }, `Windows that end by ${format.clock(found.final_ms)} have left the state.${found.final_ms < found.closed_ms ? ` Those that end by ${format.clock(found.closed_ms)} are closed, and still take late records.` : ""}`) : null,
  ];
}

// One of several states, or an older checkpoint, may be whole.
async function damaged(context, asked, said) {
  const found = await context.get("shape", { at: asked.at });
  const others = found.states.length > 1 ? found.states.filter((one) => one.state !== asked.name) : [];
  context.put(notice(said), h("section", { class: "card" },
    others.length > 0 && h("p", {}, "The other states have files of their own: ", others.map((one, place) => [place > 0 && ", ", h("a", { href: context.link("state", { name: one.state, at: asked.at }) }, one.state)]), "."),
    h("p", {}, h("a", { href: context.link("storage", { at: asked.at }) }, "Storage"), " verifies every file, and names the newest checkpoint that is whole; ", h("a", { href: context.link("timeline") }, "the time line"), " has those that are kept.")));
  return null;
}

// -- without a pipeline ----------------------------------------------------------------------------------------------

async function shape(context, said) {
  const found = await context.get("shape", { at: context.query.get("at") });
  context.put(notice(said, "warn"), ...found.states.map((one) => h("section", { class: "card" }, h("h2", {}, `State ${one.name}`),
    h("dl", { class: "figures" }, figure("rows, about", format.number(one.rows)), figure("size", format.bytes(one.bytes)), figure("runs", format.number(one.runs)), one.pane_min !== null && figure("first pane", format.seconds(one.pane_min), null, true), one.pane_max !== null && figure("last pane", format.seconds(one.pane_max), null, true)),
    h("br"), h("p", { class: "small" }, h("span", { class: "soft" }, "key "), one.key.join(", ") || "none"), h("p", { class: "small" }, h("span", { class: "soft" }, "monoid "), one.monoid), h("p", { class: "small" }, h("span", { class: "soft" }, "window "), one.window), one.time_to_live && h("p", { class: "small" }, h("span", { class: "soft" }, "time to live "), one.time_to_live), found.states.length > 1 && h("p", { class: "small" }, h("span", { class: "soft" }, "clock "), format.clock(one.clock_ms)))));
  return null;
}

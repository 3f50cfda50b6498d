// The time line of checkpoints: pick one to read it in words, pick another to see the difference.

import { said } from "./api.js";
import { fill, h, notice, renew, s, table, words } from "./dom.js";
import { fresh } from "./fresh.js";
import { rows as valueRows } from "./values.js";
import * as format from "./format.js";

const SHAPES = {
  checkpoint: ["circle", { cx: 7, cy: 7, r: 4.5, class: "processed" }], fence: ["path", { d: "M2 7h10M4 3v8M10 3v8", stroke: "currentColor", "stroke-width": 1.6, fill: "none" }],
  compaction: ["path", { d: "M7 1v12M2 4l5 3 5-3M2 10l5-3 5 3", stroke: "currentColor", "stroke-width": 1.5, fill: "none" }],
  rollback: ["path", { d: "M12 11V7a4 4 0 0 0-4-4H3M6 0 3 3l3 3", stroke: "currentColor", "stroke-width": 1.6, fill: "none" }],
  savepoint: ["path", { d: "M3 1h8v12l-4-3-4 3z", class: "late" }], migration: ["path", { d: "M1 7h11M8 3l4 4-4 4", stroke: "currentColor", "stroke-width": 1.6, fill: "none" }],
  correction: ["path", { d: "M7 1v7M3.5 4.5h7M3.5 12h7", stroke: "currentColor", "stroke-width": 1.6, fill: "none" }],
  merge: ["path", { d: "M3 1c0 6 8 6 8 12M11 1c0 6-8 6-8 12", stroke: "currentColor", "stroke-width": 1.5, fill: "none" }], unreadable: ["path", { d: "M2 2l10 10M12 2 2 12", stroke: "currentColor", "stroke-width": 1.8 }],
};

function kind(one) {
  const [tag, attributes] = SHAPES[one.kind] ?? SHAPES.checkpoint;
  const text = { fence: "take-over", rollback: `rollback to ${one.target}` }[one.kind] ?? (one.id === 0 ? "beginning" : one.corrections?.length ? `correction ${one.corrections.map((found) => `${found.name} (+${format.number(found.added)} −${format.number(found.removed)})`).join(" or ")}` : one.kind);
  return h("span", { class: one.error ? "kind lost" : "kind" }, s("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" }, s(tag, attributes)), text);
}

const tags = (one) => [one.pinned && h("span", { class: "tag good" }, "pinned"), one.kept_by_policy && h("span", { class: "tag" }, "kept by policy"), one.abandoned && h("span", { class: "tag warn" }, "abandoned"), one.end_of_input && h("span", { class: "tag" }, "end of input")];

const FATES = ["read", "processed", "late", "dead", "duplicate", "skipped"];

const PAGE = 100, ANSWER = 500;

export async function timelineView(context) {
  let lines = [], page = null, wanted = PAGE;
  let values = false, name = null;
  const chosen = () => ({ id: number(context.query.get("id")), from: number(context.query.get("from")) });
  const list = h("section", { class: "card" });
  const detail = h("section", { class: "card stick", "aria-live": "polite" });

  // Every line anew, from the newest on: so none is missing, and none is old. A server that has many manifests to read answers
  // with some at a time; they are drawn as soon as they are more than those that are there.
  const listed = fresh(context, async () => {
    let found = [], answer = { next: null };
    do {
      answer = await context.get("timeline", { before: answer.next, limit: Math.min(wanted - found.length, ANSWER) });
      found = joined(found, answer.checkpoints);
      if (found.length > lines.length) drawList(found, answer);
    } while (answer.next !== null && found.length < wanted && context.current());
    return [found, answer];
  }, (data) => drawList(...data));

  function drawList(found = lines, answer = page) {
    [lines, page] = [found, answer];
    if (!context.current()) return;
    if (!list.isConnected) context.put(h("div", { class: "side" }, list, detail));
    const { id, from } = chosen();
    const columns = [
      { name: "id", kind: "num", cell: (one) => format.number(one.id) },
      { name: "kind", cell: (one) => [kind(one), " ", tags(one)] },
      { name: "clock", kind: "time", cell: (one) => (one.error ? "" : format.clock(one.clock_ms)) },
      { name: "read", kind: "num", cell: added },
      { name: "set aside", kind: "num", cell: (one) => aside(one) },
      { name: "state", kind: "num", cell: (one) => (one.error ? "" : format.bytes(one.state_bytes)) },
      { name: "planned", kind: "time", cell: (one) => planned(one.committed_ms) },
    ];
    renew(list,
      h("div", { class: "head" }, h("h2", {}, `${format.count(page.kept, "checkpoint")} ${page.kept === 1 ? "is" : "are"} kept`), h("p", { class: "small soft" }, "Pick one to read it; with Shift a second to compare.")),
      table(columns, lines, { pick, key: (one) => one.id, label: "checkpoints, newest first", selected: (one) => one.id === id || one.id === from, rowClass: (one) => (one.abandoned ? "gone" : null) }),
      page.next !== null && h("div", { class: "pages" }, h("button", { "data-key": "older", onclick: older }, `Older than ${format.number(page.next)}`)));
  }

  const older = () => { wanted = Math.max(wanted, lines.length) + PAGE; listed.now(); };

  // -- the one that is picked ----------------------------------------------------------------------------------------

  const picked = fresh(context, async () => {
    const { id, from } = chosen();
    detail.setAttribute("aria-busy", "true");
    return from === null ? described(id ?? lines[0]?.id) : compared(from, id);
  }, (parts) => { detail.removeAttribute("aria-busy"); renew(detail, ...parts); }, (error) => { detail.removeAttribute("aria-busy"); fill(detail, notice(said(error))); });

  const pick = (one, event) => {
    const { id } = chosen();
    choose(event?.shiftKey && id !== null && id !== one.id ? { id: Math.max(id, one.id), from: Math.min(id, one.id) } : { id: one.id });
  };
  const choose = async (to) => {
    history.replaceState(null, "", context.link("timeline", to));
    context.query = new URLSearchParams(Object.entries(to));
    values = false;
    name = null;
    drawList();
    await picked.now();
    if (to.id && window.innerWidth <= 900) detail.scrollIntoView({ block: "start" });
  };
  const withValues = (of) => { values = true; name = of; picked.now(); };

  async function described(id) {
    const one = await context.get("manifest", { id });
    const before = lines.find((other) => other.id < id && !other.error);
    return [
      h("div", { class: "head" }, h("h2", {}, `Checkpoint ${format.number(one.id)}`), h("span", {}, kind(one), " ", tags(one))),
      h("p", {}, one.meaning), h("br"),
      words(one.words), h("br"),
      h("div", { class: "legend" }, FATES.filter((fate) => one[fate] || fate === "read").map((fate) => h("span", {}, h("span", { class: `key ${fate}` }), `${fate} ${format.number(one[fate])}`))), h("br"),
      h("div", { class: "bar" },
        before && h("button", { onclick: () => choose({ id, from: before.id }) }, `Compare with ${format.number(before.id)}`),
        h("a", { class: "button", href: context.link("state", { at: id }) }, "State at it"), h("a", { class: "button", href: context.link("storage", { at: id }) }, "Its runs")),
    ];
  }

  async function compared(from, to) {
    const found = await context.get("difference", { from, to, values: values ? 1 : null, name });
    const columns = [
      { name: "what", cell: (one) => [h("span", { class: "soft" }, `${one.part} `), h("span", { title: one.name }, format.run(one.name))] },
      { name: `at ${format.number(found.before)}`, kind: "text", cell: (one) => (one.before !== null ? side(one.before) : h("span", { class: "null soft" }, "none")) },
      { name: `at ${format.number(found.after)}`, kind: "text", cell: (one) => (one.after !== null ? side(one.after) : h("span", { class: "null soft" }, "none")) },
    ];
    return [
      h("div", { class: "head" }, h("h2", {}, `From ${format.number(found.before)} to ${format.number(found.after)}`), h("button", { onclick: () => choose({ id: to }) }, `Only ${format.number(to)}`)),
      found.changes.length ? table(columns, found.changes, { label: "what changed" }) : h("p", { class: "empty" }, "Nothing differs."),
      found.changes_more > 0 && h("p", { class: "soft small" }, `and ${format.number(found.changes_more)} more`),
      h("br"),
      found.values?.names.length > 1 && h("div", { class: "bar" }, h("label", { class: "small soft", for: "of" }, "State"), h("select", { id: "of", onchange: (event) => withValues(event.target.value) }, found.values.names.map((one) => h("option", { value: one, selected: one === found.values.name }, one)))),
      found.values ? [h("h3", {}, `${format.number(found.values.differing)} values differ, ${format.number(found.values.equal)} are equal`), valueRows(found.values)]
        : h("button", { onclick: () => withValues(null) }, "Compare values by key"),
    ];
  }

  await listed.first(() => lines.length > 0);
  await picked.now();
  return {
    changed() { listed.changed(); if (chosen().id === null) picked.changed(); },
    close: () => choose({}),
  };
}

// Lines and those that follow them; what the last of the first ones added is known now.
function joined(found, following) {
  const last = found.findLast((one) => !one.error), first = following.find((one) => !one.error);
  if (last && first && last.parent !== first.id) last.after ??= first.id;
  if (last && first) last.added ??= Object.fromEntries(FATES.map((fate) => [fate, last[fate] - first[fate]]));
  return found.concat(following);
}

// What it read; with those that were between it and the line below, and are no longer kept. A rollback takes reads back.
function added(one) {
  if (one.error) return "";
  if (!one.added) return one.read ? [format.number(one.read), h("span", { class: "soft small" }, " in all")] : "0";
  const count = one.added.read, text = count < 0 ? `−${format.number(-count)}` : `+${format.number(count)}`;
  if (one.after === undefined || !count) return text;
  return h("span", { title: `checkpoints ${one.after + 1} to ${one.id} together: those between are no longer kept, or cannot be read` }, text, h("span", { class: "soft small" }, ` since ${format.number(one.after)}`));
}

function aside(one) {
  if (one.error) return "";
  const { late, dead } = one.added ?? one;
  const said = [late > 0 && `${format.number(late)} late`, dead > 0 && `${format.number(dead)} dead`].filter(Boolean);
  return said.length ? said.join(", ") : h("span", { class: "soft" }, "–");
}

// The time of day; the date too, unless it is today's.
function planned(ms) {
  if (!ms) return "–";
  const text = format.seconds(ms), today = format.seconds(Date.now());
  return h("span", { title: text }, text.slice(0, 10) === today.slice(0, 10) ? text.slice(11) : text.slice(0, 16));
}

const side = (text) => (/^-?[\d,]+$/.test(text) ? h("span", { class: "whole" }, text) : format.run(text));

const number = (text) => (text === null || text === "" ? null : Number(text));

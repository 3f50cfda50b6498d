// The account: read = processed + late + dead + duplicate, as a picture that adds up; and what was set aside.

import { action, h, notice, plain, renew, s, table } from "./dom.js";
import { fresh } from "./fresh.js";
import * as format from "./format.js";

const FATES = ["processed", "late", "dead", "duplicate"];
const TEXTS = { processed: "counted in the state", late: "their windows had closed", dead: "not decodable, or without a usable time", duplicate: "copies, recognised" };
const W = 1000;

export async function accountView(context) {
  const top = h("section", { class: "card" }), list = h("section", { class: "card" });
  const counted = fresh(context, () => context.get("account"), (data) => renew(top, ...account(data)));
  await counted.first();
  const asked = context.query.get("rows");
  const aside = rowsOf(context, list, ["late", "dead"].includes(asked) ? asked : null);
  await aside.first();
  context.put(top, list);
  return { changed() { counted.changed(); aside.changed(); } };
}

function account(data) {
  const total = data.total;
  const terms = FATES.filter((fate) => total[fate] || fate !== "duplicate");
  return [
    h("div", { class: "head" }, h("h2", {}, `Every record, up to checkpoint ${format.number(data.id)}`), data.balances ? h("span", { class: "tag good" }, "✓ adds up, in every partition") : h("span", { class: "tag bad" }, "✕ does not add up")),
    h("p", { class: "sum" }, h("b", {}, format.number(total.read)), h("span", { class: "soft" }, "read"), terms.map((fate, place) => [h("span", { class: "op" }, place ? "+" : "="), h("b", {}, format.number(total[fate])), h("span", { class: "soft" }, fate)])),
    h("br"), balance(total), h("br"),
    h("div", { class: "legend" }, terms.map((fate) => h("span", {}, h("span", { class: `key ${fate}` }), `${fate} ${format.share(total[fate], total.read)}`, h("span", { class: "soft" }, `: ${TEXTS[fate]}`)))),
    total.skipped > 0 && notice({ title: `${format.number(total.skipped)} positions were skipped`, text: "The source no longer had them when they were due, so none of them was read." }),
    data.states.length > 0 && h("p", { class: "small soft" }, `Each of the states ${data.states.join(", ")} has this account: all have read the same records. A record is late if none takes it; one that only some refuse is processed, and listed below as partly late.`),
    h("br"), partitions(data), corrections(data),
  ];
}

// Two bars of one width: what was read, and what became of it. Small parts get a visible least width, taken from the largest.
function widths(total, least = 3) {
  const all = Math.max(1, total.read);
  const parts = FATES.map((fate) => [fate, total[fate] > 0 ? Math.max(least, (W * total[fate]) / all) : 0]);
  const over = parts.reduce((sum, [, wide]) => sum + wide, 0) - (total.read ? W : 0);
  const largest = parts.reduce((a, b) => (b[1] > a[1] ? b : a));
  largest[1] = Math.max(0, largest[1] - over);
  return parts;
}

function balance(total) {
  let x = 0;
  const parts = widths(total).map(([fate, wide]) => { const part = s("rect", { class: `${fate} hit`, x, y: 34, width: wide, height: 24 }, s("title", {}, `${fate}: ${format.number(total[fate])}`)); x += wide; return part; });
  const text = `read ${total.read} = ${FATES.map((fate) => `${fate} ${total[fate]}`).join(" + ")}`;
  return s("svg", { viewBox: `0 0 ${W} 60`, role: "img", "aria-label": text, preserveAspectRatio: "none", height: 60 }, s("rect", { class: "read", x: 0, y: 4, width: total.read ? W : 0, height: 24 }), parts);
}

function partitions(data) {
  const most = Math.max(1, ...data.partitions.map((one) => one.read));
  const bar = (one) => {
    const scale = one.read / most;
    let x = 0;
    return s("svg", { viewBox: `0 0 ${W} 12`, role: "img", "aria-label": "share", preserveAspectRatio: "none", height: 12 }, widths(one, 5).map(([fate, wide]) => { const part = s("rect", { class: fate, x: x * scale, y: 1, width: wide * scale, height: 10 }); x += wide; return part; }));
  };
  const columns = [
    { name: "partition", kind: "text", cell: (one) => one.name },
    ...["read", ...FATES].map((fate) => ({ name: fate, kind: "num", cell: (one) => (one[fate] ? format.number(one[fate]) : h("span", { class: "soft" }, "0")) })),
    { name: "share", kind: "drawn", cell: bar },
  ];
  const all = data.more ? [...data.partitions, { name: `${format.number(data.more.count)} more`, ...data.more }] : data.partitions;
  return data.partitions.length ? table(columns, all, { label: "account by partition" }) : h("p", { class: "empty" }, "Nothing was read yet.");
}

// Their records are those of no source, so they stand beside the account.
function corrections(data) {
  if (!data.corrections.length) return null;
  const columns = [
    { name: "correction", kind: "text", cell: (one) => one.name }, { name: "by checkpoint", kind: "num", cell: (one) => format.number(one.checkpoint) },
    { name: "records", kind: "text", cell: (one) => one.text },
  ];
  return [h("br"), h("h3", {}, "Corrections, beside the account"), table(columns, data.corrections, { label: "corrections" })];
}

// -- set aside -------------------------------------------------------------------------------------------------------

// The newest rows of a folder, and older ones behind them where they were asked for.
function rowsOf(context, list, folder) {
  let page = { rows: [], next: null, total: 0, correct: null }, pages = 1;
  const newest = fresh(context, async () => {
    if (folder === null) {
      const first = await context.get("late", { limit: 1 });
      folder = first.rows.length ? "late" : "dead";
    }
    return context.get(folder);
  }, (found) => { [page, pages] = [found, 1]; draw(); });

  const [more, failed] = action("More", async () => {
    const before = page, found = await context.get(folder, { cursor: page.next });
    if (before !== page) return;
    page = { ...found, rows: page.rows.concat(found.rows) };
    pages += 1;
    draw();
  });
  const choose = (name) => { folder = name; history.replaceState(null, "", context.link("account", { rows: name })); newest.now(); };
  const button = (name, text) => h("button", { "data-key": name, "aria-pressed": String(name === folder), onclick: () => choose(name) }, text);
  const columns = [
    { name: "reason", kind: "text", cell: (one) => plain(one.reason, 400) },
    { name: "file", kind: "text", cell: (one) => [plain(one.file ?? ""), one.partition !== null && h("span", { class: "soft small" }, ` ${one.partition}`)] },
    { name: "offset", kind: "num", cell: (one) => one.offset ?? "–" },
    { name: "time", kind: "time", cell: (one) => one.time ?? h("span", { class: "null" }, "none") },
    { name: "in", kind: "num", cell: (one) => h("a", { href: context.link("timeline", { id: one.checkpoint }) }, format.number(one.checkpoint)) },
    { name: "would go to", kind: "text", cell: (one) => one.lands ?? "" },
    { name: "record", kind: "text wide", cell: (one) => h("code", {}, plain(one.record ?? "", 600)) },
  ];
  const none = { late: "No late rows: every record arrived before its windows had closed.", dead: "No dead letters: every record could be read." };
  function draw() {
    const { rows, total, next } = page, focused = document.activeElement === more;
    const gone = `${format.number(total)} were counted, and their files are gone: a rollback has taken them back, or they were deleted.`;
    renew(list,
      h("div", { class: "head" }, h("h2", {}, "Set aside, newest first"), h("div", { class: "bar" }, button("late", "Late rows"), button("dead", "Dead letters"))),
      rows.length > 0 && page.correct && h("p", { class: "small soft" }, "A corrected record is put in, once, by ", h("code", {}, page.correct), ". A window that is final takes none."),
      rows.length ? table(columns.filter((one) => one.name !== "would go to" || page.correct), rows, { label: folder }) : h("p", { class: "empty" }, total ? gone : none[folder]));
    if (next) list.append(h("div", { class: "pages" }, more, h("span", { class: "soft small" }, total > rows.length ? `${format.number(rows.length)} of about ${format.number(total)}` : `${format.number(rows.length)} rows`), failed));
    if (focused) more.focus({ preventScroll: true });
  }
  // Who reads older rows keeps them.
  return { first: newest.first, changed: () => { if (pages === 1) newest.changed(); } };
}

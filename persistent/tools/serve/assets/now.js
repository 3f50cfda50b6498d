// Now: is it alive, how far behind is it, is anything lost.

import { card, figure, h, picture, renew, room, s, table } from "./dom.js";
import { fresh } from "./fresh.js";
import * as format from "./format.js";

const SIGNS = { good: "●", warn: "▲", bad: "✕", still: "■" };
const ASKED = { alive: "Is it alive?", behind: "How far behind?", lost: "Is anything lost?" };

export async function nowView(context) {
  const box = h("div", { class: "cards" });
  let drawn = 0;
  const shown = fresh(context, () => context.get("now"), (data) => {
    // A server that has many manifests to read answers with the last ones, and knows more when it is asked again.
    if (data.series.length > drawn) shown.changed();
    drawn = data.series.length;
    renew(box, verdicts(data), figures(data), h("div", { class: "two" }, rowsCard(data), stateCard(data)), statesCard(context, data), clockCard(data), sinksCard(data));
    if (box.isConnected) return;
    context.put(box);
    document.getElementById(`see-${context.query.get("see")}`)?.scrollIntoView({ block: "start" });
  });
  await shown.first();
  // Ages go on without a checkpoint: a driver in a long step falls behind, and one that was killed is ever longer dead.
  const timer = setInterval(() => { if (!document.hidden) shown.changed(); }, 5000);
  return { changed: shown.changed, leave: () => clearInterval(timer) };
}

function verdicts(data) {
  return h("div", { class: "verdicts" }, data.verdicts.map((one) =>
    h("section", { class: `card verdict ${one.level}` },
      h("p", { class: "ask" }, ASKED[one.of]),
      h("p", { class: "say", "aria-live": one.of === "behind" ? null : "polite" }, h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[one.level]), one.title),
      h("p", { class: "soft small" }, one.text))));
}

function figures(data) {
  const at = data.checkpoint;
  return h("section", { class: "card" }, h("dl", { class: "figures" },
    figure("clock", format.clock(at.clock_ms), null, true),
    figure("checkpoint", format.number(at.id), format.ago(at.committed_ms, data.now_ms)),
    figure("rows a second", format.rate(data.speed.rows_per_s)),
    figure("step, plan to plan", format.span(data.speed.step_ms)),
    figure("state", format.bytes(at.state_bytes), format.count(at.state_rows, "row")),
    figure("read", format.number(at.read)),
    figure("late", format.number(at.late), format.share(at.late, at.read)),
    data.partly_late ? figure("partly late", format.number(data.partly_late), format.share(data.partly_late, at.read)) : null,
    figure("dead letters", format.number(at.dead), format.share(at.dead, at.read)),
    at.duplicate ? figure("duplicates", format.number(at.duplicate)) : null,
  ));
}

const H = 128, BASE = 106, TOP = 16;

const FATES = ["processed", "late", "dead", "duplicate"];

// By time, not by checkpoint: a step that waits for input, or only moves the clock, is no gap.
function rowsCard(data) {
  const parts = data.rates;
  if (!parts.length) return card("Rows a second", h("p", { class: "empty" }, "Known after three checkpoints that are kept."));
  const whole = (one) => FATES.reduce((sum, fate) => sum + one[fate], 0);
  const most = Math.max(...parts.map(whole), 1e-9), W = room(640, 2);
  const begin = parts[0].from_ms, scale = W / (parts.at(-1).to_ms - begin);
  const times = (one) => `${format.seconds(one.from_ms)} to ${format.seconds(one.to_ms).slice(11)}`;
  const bars = parts.map((one) => {
    let y = BASE;
    const drawn = FATES.map((fate) => {
      const tall = ((BASE - TOP) * one[fate]) / most;
      y -= tall;
      return one[fate] > 0 && s("rect", { class: `${fate} hit`, x: ((one.from_ms - begin) * scale).toFixed(2), y: y.toFixed(2), width: Math.max((one.to_ms - one.from_ms) * scale, 0.6).toFixed(2), height: Math.max(tall, 0.8).toFixed(2), "shape-rendering": "crispEdges" });
    });
    const said = FATES.filter((fate) => one[fate] > 0).map((fate) => `${fate} ${format.rate(one[fate])}`).join(", ") || "nothing read";
    return s("g", {}, s("title", {}, `${times(one)}: ${said}${said === "nothing read" ? "" : " a second"}`), drawn);
  });
  const from = format.seconds(begin), to = format.seconds(parts.at(-1).to_ms);
  return card("Rows a second", picture(W, H, `rows read a second from ${from} to ${to}, at most ${format.rate(most)}`,
    bars, s("line", { class: "axis", x1: 0, x2: W, y1: BASE, y2: BASE }), s("text", { x: 0, y: H - 4 }, from), s("text", { x: W, y: H - 4, "text-anchor": "end" }, to), s("text", { x: W, y: 9, "text-anchor": "end" }, `at most ${format.rate(most)} a second`)),
    h("div", { class: "legend small soft" }, FATES.filter((fate) => fate !== "duplicate" || parts.some((one) => one.duplicate)).map((fate) => h("span", {}, h("span", { class: `key ${fate}` }), fate))));
}

const ends = (series, W) => [s("text", { x: 0, y: H - 4 }, `checkpoint ${series[0].id}`), s("text", { x: W, y: H - 4, "text-anchor": "end" }, String(series.at(-1).id))];

function stateCard(data) {
  const series = data.series;
  if (series.length < 2) return card("Size of the state", h("p", { class: "empty" }, `${format.count(data.checkpoint.state_rows, "row")}, ${format.bytes(data.checkpoint.state_bytes)}.`));
  const most = Math.max(1, ...series.map((one) => one.state_bytes)), W = room(640, 2);
  const points = series.map((one, place) => [(place * W) / (series.length - 1), BASE - ((BASE - TOP) * one.state_bytes) / most]);
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" L");
  return card("Size of the state", picture(W, H, `bytes of the state over the last ${series.length} checkpoints, at most ${format.bytes(most)}`,
    s("path", { class: "area", d: `M0,${BASE} L${line} L${W},${BASE} Z` }), s("path", { class: "stroke", d: `M${line}` }),
    s("line", { class: "axis", x1: 0, x2: W, y1: BASE, y2: BASE }), ends(series, W), s("text", { x: W, y: 9, "text-anchor": "end" }, `at most ${format.bytes(most)}`)),
    h("p", { class: "small soft" }, `${format.count(data.checkpoint.state_rows, "row")} in ${format.count(data.checkpoint.runs, "run")} now`));
}

// Several states have each a clock of its own.
function statesCard(context, data) {
  if (!data.states.length) return null;
  const columns = [
    { name: "state", kind: "text", cell: (one) => h("a", { href: context.link("state", { name: one.name }) }, one.name) },
    { name: "window", kind: "text", cell: (one) => (one.time_to_live ? `a key lives ${one.time_to_live}` : one.window) },
    { name: "clock", kind: "time", cell: (one) => format.clock(one.clock_ms) },
    { name: "windows closed up to", kind: "time", cell: (one) => (one.closed_ms === null ? "–" : format.clock(one.closed_ms)) },
    { name: "rows", kind: "num", cell: (one) => format.number(one.rows) },
    { name: "size", kind: "num", cell: (one) => format.bytes(one.bytes) },
    { name: "runs", kind: "num", cell: (one) => format.number(one.runs) },
  ];
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "States"), h("p", { class: "small soft" }, "All have read the same records. The clock above is what all of them have reached.")), table(columns, data.states, { label: "states" }));
}

function sinksCard(data) {
  if (!data.sinks.length) return null;
  const columns = [
    { name: "sink", kind: "text", cell: (one) => [one.name, " ", one.late && h("span", { class: "tag warn" }, "late records")] },
    { name: "takes", kind: "text", cell: (one) => one.takes },
    { name: "when", kind: "text", cell: (one) => one.when },
    { name: "last batch", kind: "num", cell: (one) => (one.last === null ? "–" : format.number(one.last)) },
    { name: "published", kind: "text", cell: (one) => one.published },
  ];
  return h("section", { class: "card", id: "see-sinks" }, h("h2", {}, "Sinks"), table(columns, data.sinks, { label: "sinks" }));
}

function clockCard(data) {
  const clock = data.clock;
  const furthest = Math.max(...clock.partitions.map((one) => one.reached ?? 0));
  const columns = [
    { name: "partition", kind: "text", cell: (one) => one.name },
    { name: "largest timestamp", kind: "time", cell: (one) => (one.largest === null ? h("span", { class: "soft" }, "no record yet") : format.utc(one.largest)) },
    { name: "lets the clock go to", kind: "time", cell: (one) => (one.idle ? "–" : format.clock(one.reached)) },
    clock.partitions.length > 1 && { name: "behind the first", kind: "num", cell: (one) => (one.idle || !one.reached || one.reached === furthest ? "–" : format.span(furthest - one.reached)) },
    clock.partitions.length > 1 && { name: "", kind: "text", cell: (one) => [one.name === clock.held_by && clock.partitions.length > 1 && h("span", { class: "tag warn" }, "holds the clock back"), one.idle && h("span", { class: "tag" }, "idle: not waited for"), one.lists && h("span", { class: "tag" }, "has files not read yet")] },
  ].filter(Boolean);
  const facts = [
    data.windows ? (clock.closed ? `Windows are closed up to ${format.clock(clock.closed)}.` : "No window is closed yet.") : "No windows: nothing waits for the clock.",
    clock.not_after !== null && `Timestamps after ${format.utc(clock.not_after)} are dead letters.`,
    clock.quiet_ms > 0 && `Every source has been quiet for ${format.span(clock.quiet_ms)}.`,
    clock.ended && "The input was declared complete.",
  ].filter(Boolean).join(" ");
  return h("section", { class: "card", id: "see-clock" },
    h("div", { class: "head" }, h("h2", {}, "Clock by partition"), h("p", { class: "small soft" }, facts)),
    table(columns, clock.partitions, { label: "partitions" }),
    clock.partitions_more > 0 && h("p", { class: "small soft" }, `and ${format.number(clock.partitions_more)} more that are further ahead`));
}

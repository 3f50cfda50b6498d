// The page: which job, which view, and what the keyboard does.

import { get, said } from "./api.js";
import { fill, h, notice, renew } from "./dom.js";
import { again } from "./fresh.js";
import { graphView } from "./graph.js";
import { jobsView } from "./jobs.js";
import { nowView } from "./now.js";
import { timelineView } from "./timeline.js";
import { stateView } from "./state.js";
import { accountView } from "./account.js";
import { storageView } from "./storage.js";

const VIEWS = [["now", "Now", nowView], ["graph", "Graph", graphView], ["timeline", "Time line", timelineView], ["state", "State", stateView], ["account", "Account", accountView], ["storage", "Storage", storageView]];
const JOBS = ["jobs", "Jobs", jobsView];
const views = () => (lines.size > 1 ? [JOBS, ...VIEWS] : VIEWS);
const main = document.getElementById("main");
const lines = new Map();
let shown = null;
let turn = 0;

const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [job, view] = path.split("/").map(decoded);
  const whole = job ? "now" : views()[0][0];
  return { job: lines.has(job) ? job : [...lines.keys()][0], view: views().some(([name]) => name === view) ? view : whole, query: new URLSearchParams(query ?? "") };
}

export const link = (job, view, query = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `#/${encodeURIComponent(job)}/${view}${text ? `?${text}` : ""}`;
};

const SLOW_MS = 4000;
let failures = 0;

async function show() {
  const mine = ++turn;
  const { job, view, query } = place();
  head(job, view);
  const [, text, made] = views().find(([name]) => name === view);
  document.title = view === "jobs" ? `${text} · persistent` : `${job} · ${text} · persistent`;
  let waiting = null;
  const troubles = new Map(), seen = lines.get(job)?.version;
  const context = {
    job, query, line: () => lines.get(job), lines: () => [...lines.values()], linkTo: link, current: () => mine === turn,
    get: (path, asked) => get(`${job}/${path}`, asked),
    go: (to, asked) => { location.hash = link(job, to, asked); },
    link: (to, asked) => link(job, to, asked),
    // Once something is drawn, it is not replaced by the word that it is waited for.
    put: (...children) => { clearTimeout(waiting); if (mine === turn) fill(main, view === "jobs" ? h("div", { class: "title" }, h("h1", {}, `${lines.size} jobs`)) : title(job), ...children); },
    trouble: (of, error) => { if (mine === turn) { error ? troubles.set(of, error) : troubles.delete(of); stale([...troubles.values()][0]); } },
  };
  shown?.leave?.();
  shown = null;
  stale(null);
  waiting = setTimeout(() => {
    context.put(h("p", { class: "waiting", role: "status" }, "Reading…"));
    waiting = setTimeout(() => context.put(h("p", { class: "waiting", role: "status" }, `The store has not answered for ${SLOW_MS / 1000} seconds. The page goes on as soon as it does.`)), SLOW_MS - 250);
  }, 250);
  try {
    const drawn = await made(context);
    if (mine !== turn) { drawn?.leave?.(); return; }
    shown = drawn ?? {};
    failures = 0;
    // What has changed while it was made.
    if (lines.get(job)?.version !== seen) shown.changed?.(lines.get(job));
  } catch (error) {
    failed(context, error);
  } finally {
    clearTimeout(waiting);
  }
}

function failed(context, error) {
  if (!context.current()) return;
  if (!error.said) console.error(error);
  const words = said(error), delay = again(error, ++failures);
  context.put(notice(words, ["none", "unknown", "pipeline"].includes(words.kind) ? "warn" : "bad"));
  if (delay) setTimeout(() => context.current() && show(), delay);
}

// What is shown has grown old, and why.
function stale(error) {
  fill(document.getElementById("stale"), error && h("span", { class: "notice bad" }, h("b", {}, `${said(error).title}. `), "What you see is the last answer; the page asks again by itself."));
}

function title(job) {
  const line = lines.get(job);
  return h("div", { class: "title" }, h("h1", {}, job), h("span", { class: "mono" }, line?.url ?? ""));
}

const LEVELS = ["bad", "warn", "still", "good"];
function level(line) {
  if (!line || line.error) return !line || ["none", "waiting"].includes(line.error.kind) ? "still" : "bad";
  return LEVELS.find((one) => line.verdicts.some((verdict) => verdict.level === one)) === "bad" ? "bad" : line.verdicts[0].level;
}

function head(job, view) {
  const box = document.getElementById("jobs");
  if (lines.size > 1) {
    const options = [...lines.values()].map((line) => h("option", { value: line.name, selected: line.name === job }, `${{ bad: "✕", good: "●" }[level(line)] ?? "○"} ${line.name} – ${line.error ? line.error.title : line.verdicts[0].title}`));
    if (document.activeElement?.parentNode !== box) fill(box, h("select", { "aria-label": "Job", onchange: (event) => { location.hash = link(event.target.value, place().view); } }, options));
  }
  renew(document.getElementById("tabs"), ...views().map(([name, text]) => h("a", { href: link(job, name), "aria-current": name === view ? "page" : null }, text)));
}

function live(text, kind) {
  renew(document.getElementById("live"), h("span", { class: `dot ${kind}${kind === "good" ? " pulse" : ""}` }), text);
}

// -- events ----------------------------------------------------------------------------------------------------------

const RECONNECT_MS = 3000;
let events = null, reconnect = null;

function follow() {
  clearTimeout(reconnect);
  events?.close();
  events = new EventSource("/api/events");
  events.onopen = () => live("live", "good");
  events.onerror = () => {
    live("reconnecting…", "warn");
    // After an answer that is no stream, as that of a proxy, a browser gives up.
    if (events.readyState === EventSource.CLOSED) { clearTimeout(reconnect); reconnect = setTimeout(follow, RECONNECT_MS); }
  };
  events.addEventListener("job", (event) => heard(JSON.parse(event.data)));
}

function heard(line) {
  const before = lines.get(line.name);
  lines.set(line.name, line);
  const { job, view } = place();
  head(job, view);
  if (before?.version === line.version) return;
  if (view === "jobs") { shown?.changed?.(); return; }
  if (line.name !== job) return;
  if (before?.error || line.error) show();
  else shown?.changed?.(line);
}

// A page that nobody sees takes none of the few connections that a browser has for one server.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) follow();
  else { clearTimeout(reconnect); events?.close(); live("paused", "still"); }
});

// -- keyboard --------------------------------------------------------------------------------------------------------

const KEYS = [["1 … 6", "the views"], ["0", "all jobs"], ["[ and ]", "the job before, the next"], ["↑ ↓ or k j", "the row above, below"], ["Enter", "open the row"], ["← → ↑ ↓", "in the graph: along it, and across"], ["/", "search"], ["Esc", "leave a field; close"], ["?", "this list"]];

function help() {
  const dialog = document.getElementById("help");
  fill(dialog, h("h2", { id: "help-title" }, "Keyboard"), h("dl", { class: "words" }, KEYS.flatMap(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])), h("p", {}, h("button", { onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}

function move(step) {
  const rows = [...main.querySelectorAll("tr.pick")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + step))].focus();
}

document.addEventListener("keydown", (event) => {
  // An open list of keys has the keyboard to itself: Esc closes it.
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  const field = event.target.closest("input, select, textarea");
  if (field) { if (event.key === "Escape") field.blur(); return; }
  const { job, query } = place();
  const names = [...lines.keys()];
  const other = (step) => { location.hash = link(names[(names.indexOf(job) + step + names.length) % names.length], place().view); };
  const actions = {
    "?": help, "/": () => main.querySelector("input[type=search]")?.focus(),
    "[": () => other(-1), "]": () => other(1),
    j: () => move(1), k: () => move(-1), ArrowDown: () => event.target.closest("tr.pick") && move(1), ArrowUp: () => event.target.closest("tr.pick") && move(-1),
    Escape: () => shown?.close?.(),
  };
  if (lines.size > 1) actions["0"] = () => { location.hash = link(job, "jobs"); };
  VIEWS.forEach(([name], place) => { actions[String(place + 1)] = () => { location.hash = link(job, name); }; });
  const act = actions[event.key];
  if (!act) return;
  if (act() !== undefined || ["/", "?", "j", "k"].includes(event.key) || (event.key.startsWith("Arrow") && event.target.closest("tr.pick"))) event.preventDefault();
});

document.getElementById("keys").addEventListener("click", help);
window.addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); });

async function begin() {
  try {
    for (const line of (await get("jobs")).jobs) lines.set(line.name, line);
  } catch (error) {
    if (!error.said) console.error(error);
    fill(main, notice(said(error)));
    const delay = again(error, ++failures);
    if (delay) setTimeout(begin, delay);
    return;
  }
  failures = 0;
  follow();
  await show();
}

begin();

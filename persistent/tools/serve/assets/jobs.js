// Every job in one line: which one needs somebody to look.

import { h, renew, table } from "./dom.js";
import * as format from "./format.js";

export async function jobsView(context) {
  const list = h("section", { class: "card" });
  const said = (verdict) => h("span", { class: `tag ${verdict.level}` }, verdict.title);
  const of = (line, name) => line.verdicts?.find((one) => one.of === name);
  const wrong = (line) => h("span", { class: `tag ${["none", "waiting"].includes(line.error.kind) ? "warn" : "bad"}`, title: line.error.text }, line.error.title);
  const columns = [
    { name: "job", kind: "text", cell: (one) => h("a", { href: context.linkTo(one.name, "now") }, one.name) },
    { name: "is it alive?", kind: "whole", cell: (one) => (one.error ? wrong(one) : said(of(one, "alive"))) },
    { name: "is anything lost?", kind: "whole", cell: (one) => (one.error ? "" : h("a", { href: context.linkTo(one.name, "account") }, said(of(one, "lost")))) },
    { name: "clock", kind: "time", cell: (one) => (one.error ? "" : format.clock(one.checkpoint.clock_ms)) },
    { name: "checkpoint", kind: "num", cell: (one) => (one.error ? "" : h("a", { href: context.linkTo(one.name, "timeline") }, format.number(one.checkpoint.id))) },
    { name: "read", kind: "num", cell: (one) => (one.error ? "" : format.number(one.checkpoint.read)) },
    { name: "state", kind: "num", cell: (one) => (one.error ? "" : format.bytes(one.checkpoint.state_bytes)) },
    { name: "place", kind: "text", cell: (one) => h("span", { class: "mono soft" }, one.url) },
  ];
  const draw = () => renew(list, table(columns, context.lines(), { key: (one) => one.name, label: "jobs" }));
  draw();
  context.put(list);
  return { changed: draw };
}

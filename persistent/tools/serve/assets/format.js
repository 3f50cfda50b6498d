// Numbers, times, sizes and spans as text; times in UTC.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const LAST_MS = 253402300799999, YEAR_MS = 31556952000;

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export const count = (value, one) => `${number(value)} ${one}${value === 1 ? "" : "s"}`;

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? whole.format(value) : value.toLocaleString("en-US", { maximumSignificantDigits: 2 });
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) { value /= 1024; place += 1; }
  return `${place ? value.toFixed(1) : value} ${units[place]}`;
}

export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 2 * YEAR_MS) return `${(ms / YEAR_MS).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} years`;
  const seconds = ms / 1000;
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= unit) return `${(seconds / unit).toFixed(1)} ${name}`;
  return seconds >= 10 ? `${seconds.toFixed(0)} s` : `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
}

export function utc(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0 || ms > LAST_MS) return `${ms} ms`;
  return new Date(ms).toISOString().replace("T", " ").replace(".000Z", "Z");
}

export const seconds = (ms) => utc(Math.floor(ms / 1000) * 1000);
export const clock = (ms) => (ms ? seconds(ms) : "not begun");

// The name of a run, without its folder and the most of its nonce.
export const run = (text) => text.replace(/\bd\/\S+?\/(e\d+-c\d+-[0-9a-f]{6})[0-9a-f]+\.arrow/g, "$1…");

// Only all is 100 %, and only none is 0 %.
export function share(part, all) {
  if (!all) return "–";
  const percent = (100 * part) / all;
  if (part && percent < 0.001) return "< 0.001 %";
  if (part < all && percent >= 99) return `${Math.min(99.999, Math.floor(percent * 1000) / 1000)} %`;
  return `${percent.toLocaleString("en-US", { maximumSignificantDigits: 2 })} %`;
}
export const ago = (ms, now) => (ms ? `${span(Math.max(0, now - ms))} ago` : "–");

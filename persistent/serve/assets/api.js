// What the server says: data, or an error in words.

export class Said extends Error {
  constructor(said) { super(said.text); this.said = said; }
}

export async function get(path, query = {}) {
  const text = address(path, query);
  let answer;
  try {
    answer = await fetch(text, { credentials: "same-origin" });
  } catch {
    throw new Said({ kind: "gone", title: "The page's server does not answer", text: "Is 'persistent serve' still running? The page goes on by itself when it answers again." });
  }
  let body;
  try { body = await answer.json(); } catch { body = { error: { kind: "error", title: "No answer", text: `${answer.status} ${answer.statusText}` } }; }
  if (body.error) throw new Said(body.error);
  return body;
}

export function address(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `/api/${path.split("/").map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

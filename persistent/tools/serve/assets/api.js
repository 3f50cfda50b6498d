// What the server says: data, or an error in words.

const ANSWER_MS = 60000;

export class Said extends Error {
  constructor(said) { super(said.text); this.said = said; }
}

export const said = (error) => error.said ?? { kind: "defect", title: "The page failed", text: String(error) };

export async function get(path, query = {}) {
  let answer, body;
  try {
    answer = await fetch(address(path, query), { credentials: "same-origin", signal: AbortSignal.timeout(ANSWER_MS) });
    body = await answer.text();
  } catch (error) {
    if (error.name === "TimeoutError") throw new Said({ kind: "gone", title: "No answer yet", text: `The store, or the page's server, has not answered for ${ANSWER_MS / 1000} s. The page asks again by itself.` });
    throw new Said({ kind: "gone", title: "The page's server does not answer", text: "Is 'persistent serve' still running? The page goes on by itself when it answers again." });
  }
  try { body = JSON.parse(body); } catch { body = { error: { kind: "error", title: "No answer", text: `${answer.status} ${answer.statusText}` } }; }
  if (body.error) throw new Said(body.error);
  return body;
}

export function address(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `/api/${path.split("/").map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

// What a view shows is the answer to its last question. While one is awaited, changes make one more question of it, so that
// answers never overtake each other and a slow server is still drawn. What fails is said, and asked again until it is answered.

const AGAIN_MS = [1000, 2000, 4000, 8000];

// How long to wait before what failed is asked again; null if asking again would not help.
export function again(error, failures) {
  const passing = !error.said || ["gone", "away", "error"].includes(error.said.kind);
  return passing ? AGAIN_MS[Math.min(failures, AGAIN_MS.length) - 1] : null;
}

// ask(): the data. draw(data). fail(error): shows it in place; without it the page says that what it shows is old.
export function fresh(context, ask, draw, fail = null) {
  let turn = 0, waits = false, changed = false, failures = 0, timer = null;

  async function settle(mine) {
    let error = null;
    try { const data = await ask(); if (mine === turn && context.current()) draw(data); } catch (found) { error = found; }
    if (mine !== turn || !context.current()) return null;
    waits = false;
    failures = error ? failures + 1 : 0;
    if (error && !error.said) console.error(error);
    if (error && fail) fail(error);
    context.trouble(ask, error && !fail ? error : null);
    const delay = error && again(error, failures);
    if (changed) now(); else if (delay) timer = setTimeout(now, delay);
    return error;
  }

  // A new question: the answer to one that is still awaited does not count.
  function now() {
    clearTimeout(timer);
    waits = true;
    changed = false;
    return settle(++turn);
  }

  return {
    now,
    // Something has changed.
    changed: () => (waits ? void (changed = true) : void now()),
    // The first question. Its error is thrown, unless something could be drawn.
    async first(drawn = () => false) {
      const error = await now();
      if (!error || drawn()) return;
      clearTimeout(timer);
      context.trouble(ask, null);
      throw error;
    },
  };
}

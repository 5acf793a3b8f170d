// Locks of fencelock in Node: see docs/languages.md.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const start = Date.now() - performance.now();
const now = () => Math.max(performance.now(), Date.now() - start) / 1000; // counts a suspend

export function locks(url) {
  const env = { ...process.env, FENCELOCK_URL: url };
  const child = spawn("fencelock", ["pipe"], { env, stdio: ["pipe", "pipe", "inherit"], detached: true });
  const claims = new Map();
  let [next, alive] = [1, true];
  const send = (request) => child.stdin.write(JSON.stringify({ at: now(), ...request }) + "\n");
  const beat = setInterval(() => send({ op: "beat" }), 1000);
  const fail = (claim, told) => claim?.lost(Object.assign(new Error(told.text), told));
  const extend = (claim, at, ms) => {
    if (!claim || ms === undefined) return;
    clearTimeout(claim.timer);
    claim.end = at + ms / 1000;
    claim.timer = setTimeout(fail, (claim.end - now()) * 1000, claim, { class: "lost", text: "not renewed in time" });
  };
  const finish = (id) => { claims.get(id)?.done(); claims.delete(id); };
  const ended = () => {
    clearInterval(beat);
    alive = false;
    for (const [id, claim] of claims) fail(claim, { class: "lost", text: "fencelock pipe has ended" }), finish(id);
  };
  createInterface({ input: child.stdout }).on("close", ended).on("line", (line) => {
    const { at, id, left = {}, acquired, lost, ended, error } = JSON.parse(line);
    for (const [key, ms] of Object.entries(left)) extend(claims.get(+key), at, ms);
    extend(claims.get(id), at, acquired?.left_ms);
    if (acquired) claims.get(id)?.got(acquired);
    if (lost || error) fail(claims.get(id), lost ?? error);
    if (ended || error) finish(id);
  });
  child.on("error", ended).stdin.on("error", () => {}); // its output tells

  async function lock(name, options, work) {
    if (!alive) throw new Error("fencelock pipe has ended, or did not start");
    const [id, abort, claim] = [next++, new AbortController(), { end: Infinity }]; // on files there is no deadline
    const over = new Promise((done) => { claims.set(id, Object.assign(claim, { done })); });
    const check = () => { if (now() >= claim.end) fail(claim, { class: "lost", text: "too late" }); abort.signal.throwIfAborted(); };
    try {
      const { token_text } = await new Promise((got, failed) => {
        Object.assign(claim, { got, lost: (err) => { abort.abort(err); failed(err); } });
        send({ op: "acquire", id, name, ...options });
      });
      const result = await work({ token: BigInt(token_text), signal: abort.signal, check });
      check();
      return result;
    } finally {
      clearTimeout(claim.timer);
      if (claims.has(id)) send({ op: "release", id });
      if (!abort.signal.aborted) await over; // a child that stands still does not answer
    }
  }
  return { lock, close: () => child.stdin.end(), child };
}

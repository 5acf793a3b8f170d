(() => {
"use strict";
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent), S = data.start, E = data.end, T = E - S, BASE = BigInt(data.base);
const {locks, workers, faults, losses, marks: violations} = data;
const canvas = $("lanes"), cx = canvas.getContext("2d"), tip = $("tip"), strip = $("strip"), frame = $("frame");

// ---- data: acquisitions are in the order of their grants; times are microseconds
const all = [], last = locks.map(() => 0n); // acquisitions, and the last token of each lock
let granted = 0; // the time of the last grant
for (const [lane, lock, shared, died, since, wait, hold, after, more] of data.granted) {
  const from = granted += since, to = from + hold;
  const token = last[lock] = BigInt.asIntN(64, last[lock] + BigInt(more));
  all.push({i: all.length, lane, lock, shared, died, called: from - wait, from, to, end: to + after, token, height: Number(token - BASE), row: 0});
}
const marks = [...violations, ...losses].sort((a, b) => a.at - b.at), lossOf = new Map(losses.map(l => [l.a, l]));

// A list is sorted by the start of its items. Latest is the last end of an item and of all before it,
// so that the first item that reaches a time is found by bisection, however many there are.
class List {
  constructor(items, end) {
    let latest = -Infinity;
    this.items = items.sort((a, b) => a.from - b.from);
    this.latest = Float64Array.from(this.items, x => latest = Math.max(latest, end(x)));
  }
  first(t) {
    let low = 0, high = this.items.length;
    while (low < high) { const middle = low + high >> 1; if (this.latest[middle] < t) low = middle + 1; else high = middle; }
    return low;
  }
  * within(a, b) { for (let i = this.first(a); i < this.items.length && this.items[i].from <= b; i++) yield this.items[i]; }
}
const lists = (of, key, items, end) => {
  const groups = of.map(() => []);
  items.forEach(x => groups[x[key]].push(x));
  return groups.map(g => new List(g, end));
};
const failed = data.failed.map(([lane, lock, from, to]) => ({lane, lock, from, to}));
const refused = data.refused.map(([lane, from]) => ({lane, from, to: from}));
const waiting = all.map(a => ({lane: a.lane, lock: a.lock, from: a.called, to: a.from})).concat(failed);
const laneHolds = lists(workers, "lane", all, a => a.end), laneWaits = lists(workers, "lane", waiting, w => w.to), laneRefused = lists(workers, "lane", refused, w => w.to);
const lockHolds = lists(locks, "lock", all, a => a.to), lockWaits = lists(locks, "lock", waiting, w => w.to);
const everything = new List(all.slice(), a => a.from);

// Holds of one worker at the same time get rows of their own in its lane.
const laneRows = laneHolds.map(list => {
  const ends = [];
  for (const a of list.items) {
    const free = ends.findIndex(end => end <= a.from);
    a.row = free < 0 ? Math.min(5, ends.length) : free;
    ends[a.row] = a.end;
  }
  return Math.max(1, ends.length);
});

// ---- words
const span = us => us === 0 ? "0 s" : us < 999.5 ? +us.toPrecision(3) + " µs" : us < 999500 ? +(us / 1e3).toPrecision(3) + " ms" : us < 1e8 ? +(us / 1e6).toPrecision(3) + " s" : `${Math.floor(us / 6e7)} min ${Math.floor(us / 1e6) % 60} s`;
const time = us => (us / 1e6).toFixed(view.b - view.a < 1e5 ? 6 : 3) + " s";
const token = a => BASE === 0n ? String(a.token) : "+" + (a.token - BASE);
const name = lane => workers[lane];
const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

// ---- the view
const view = {a: S, b: E}, shown = locks.map(() => true);
let W = 0, H = 0, G = 64, narrow = false, css = {}, rows = {}, selected = null, lane = 0, current = -1, brush = null, later = 0, asked = false;
const R = 8, X = t => G + (t - view.a) / (view.b - view.a) * (W - G - R), at = x => view.a + (x - G) / (W - G - R) * (view.b - view.a);
function go(a, b) {
  const wide = Math.min(T, Math.max(20, b - a));
  view.a = Math.min(E - wide, Math.max(S, a)); view.b = view.a + wide;
  draw();
  clearTimeout(later);
  later = setTimeout(settle, 200);
}
const zoom = (factor, t = (view.a + view.b) / 2) => go(t - (t - view.a) * factor, t + (view.b - t) * factor);
const pan = share => go(view.a + share * (view.b - view.a), view.b + share * (view.b - view.a));

// settle runs once the view rests: it says what is in view, and puts the view into the address.
function settle() {
  const whole = view.b - view.a >= T, inside = marks.filter(m => m.at <= view.b && m.to >= view.a), b = document.createElement("b");
  const parts = selected ? describe(selected) : [whole ? `The whole run, ${span(T)}` : `${span(view.b - view.a)} from ${time(view.a)}`,
    count(everything.first(view.b) - everything.first(view.a), "grant"), ...inside.filter(m => !m.bad).slice(0, 6).map(m => m.id)];
  b.textContent = selected ? "" : inside.filter(m => m.bad).slice(0, 4).map(m => ` · ${m.id} ${m.title}`).join("");
  $("view").replaceChildren(parts.join(" · "), b);
  const hash = whole ? "" : `#t=${(view.a / 1e6).toFixed(6)},${(view.b / 1e6).toFixed(6)}`;
  if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname + location.search);
}
function open(hash) {
  selected = null; current = -1;
  const m = /^#t=([\d.e+-]+),([\d.e+-]+)$/.exec(hash);
  if (m && +m[2] > +m[1]) go(m[1] * 1e6, m[2] * 1e6); else go(S, E);
}
function step(d) { // to the next or the previous violation or loss
  if (!marks.length) return;
  if (current < 0) { const i = marks.findIndex(m => m.at >= view.a + (view.b - view.a >= T ? 0 : (view.b - view.a) / 2)); current = d > 0 ? (i < 0 ? 0 : i) : (i < 0 ? marks.length : i) - 1; }
  else current += d;
  current = (current + marks.length) % marks.length;
  selected = null;
  const m = marks[current], end = Math.max(m.to, m.margin && m.b >= 0 ? all[m.b].from : 0), around = Math.max(2 * (end - m.at), T / 200, 5000);
  go(m.at - around, end + around);
}
function select(a) {
  selected = a;
  if (!a) { tell(null); settle(); return draw(); }
  lane = a.lane;
  const wide = view.b - view.a;
  if (a.to < view.a || a.from > view.b) go(a.from - wide / 2, a.from + wide / 2); else { settle(); draw(); }
  tell(describe(a), Math.max(G, X(a.from)), rows.lanes[lane].y + 12);
}
function find(text) {
  const m = /^\s*(\+?)(\d+)\s*$/.exec(text), t = /^\s*([\d.]+)\s*(min|s|ms|µs|us)?\s*$/.exec(text);
  const wanted = m && [BigInt(m[2]), BigInt(m[2]) + BASE], a = m && all.find(a => a.token === wanted[1] || !m[1] && a.token === wanted[0]);
  if (a) { const wide = Math.max(200, (a.to - a.from) * 3); go(a.from - wide / 3, a.from + wide * 2 / 3); select(a); return; }
  const wide = Math.min(view.b - view.a, T / 20), us = t && t[1] * {min: 6e7, s: 1e6, ms: 1e3, "µs": 1, us: 1}[t[2] || "s"];
  selected = null;
  if (t && us <= E) go(us - wide / 2, us + wide / 2); else $("view").textContent = `No acquisition has the token ${text.trim()}.`;
}

// ---- the picture
function layout() {
  const style = getComputedStyle(document.documentElement), get = n => style.getPropertyValue("--" + n).trim();
  for (const n of ["panel", "ink", "soft", "faint", "rule", "hair", "wait", "lost", "bad", "fault", "edge", "gap", "on"]) css[n] = get(n);
  css.c = Array.from({length: data.colours}, (_, i) => get("c" + i));
  W = canvas.parentNode.clientWidth; narrow = W < 600;
  font(12, true);
  const widest = Math.max(40, ...workers.slice(0, 400).map(w => cx.measureText(w).width), ...locks.slice(0, data.rows).map(l => cx.measureText(l).width));
  G = Math.round(Math.min(narrow ? 84 : 170, widest + 24));
  rows = {marks: 22, faults: 40, locks: [], lanes: []};
  let y = 62;
  locks.slice(0, data.rows).forEach(() => { rows.locks.push({y, h: 20}); y += 22; });
  rows.tokens = {y, h: all.length ? 40 : 0}; y += rows.tokens.h + 8;
  workers.forEach((w, i) => {
    const h = 11 + Math.max(19, 9 * laneRows[i]);
    rows.lanes.push({y, h}); y += h;
  });
  H = y + 8;
  const ratio = devicePixelRatio || 1;
  canvas.width = W * ratio; canvas.height = H * ratio; canvas.style.height = H + "px";
  cx.setTransform(ratio, 0, 0, ratio, 0, 0);
  strip.style.setProperty("--gutter", G + 1 + "px");
  if (W > G + R) drawStrip(); // else the page is not shown yet
}
function drawStrip() { // the whole run: the names over the picture as they are, and its rows flattened
  const {a, b} = view, ratio = canvas.width / W, map = $("map"), wide = (W - G - R) * ratio, top = 58 * ratio, low = Math.min(84, H - 62) * ratio;
  view.a = S; view.b = E;
  paint();
  map.width = wide; map.height = top + low; map.style.height = (top + low) / ratio + "px";
  const to = map.getContext("2d");
  to.drawImage(canvas, G * ratio, 0, wide, top, 0, 0, wide, top);
  to.drawImage(canvas, G * ratio, 62 * ratio, wide, (H - 62) * ratio, 0, top, wide, low);
  view.a = a; view.b = b;
}
function hatch(colour) { // the time after a loss has a pattern, for eyes that do not see its colour
  const tile = document.createElement("canvas"), c = tile.getContext("2d");
  tile.width = tile.height = 6; c.strokeStyle = colour; c.lineWidth = 2;
  c.beginPath(); c.moveTo(-1, 7); c.lineTo(7, -1); c.moveTo(-1, 1); c.lineTo(1, -1); c.moveTo(5, 7); c.lineTo(7, 5); c.stroke();
  return cx.createPattern(tile, "repeat");
}
const font = (size, bold) => cx.font = `${bold ? 600 : 400} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
function text(s, x, y, colour, align = "left") { cx.fillStyle = colour; cx.textAlign = align; cx.textBaseline = "middle"; cx.fillText(s, x, y); }
function fit(s, room) {
  if (cx.measureText(s).width <= room) return s;
  while (s && cx.measureText(s + "…").width > room) s = s.slice(0, -1);
  return s + "…";
}
function box(x, y, w, h, colour) { cx.fillStyle = colour; cx.fillRect(x, y, w, h); }
function line(x0, y0, x1, y1, colour, w = 1, dash = []) { cx.strokeStyle = colour; cx.lineWidth = w; cx.setLineDash(dash); cx.beginPath(); cx.moveTo(x0, y0); cx.lineTo(x1, y1); cx.stroke(); cx.setLineDash([]); }
function label(s, x, y, colour, align) { // text on a background
  const w = cx.measureText(s).width, left = align === "right" ? x - w : x;
  box(left - 2, y - 7, w + 4, 14, css.panel); text(s, left, y, colour);
}
const clip = (a, b) => [Math.max(G, X(a)), Math.min(W - R, X(b))];
function draw() { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; paint(); }); } }
function paint() {
  box(0, 0, W, H, css.panel);
  drawFaults();
  drawAxis();
  cx.save(); cx.beginPath(); cx.rect(G - 1, 0, W - G - R + 2, H); cx.clip();
  const inView = violations.filter(v => v.to >= view.a && v.at <= view.b), few = inView.length <= 12;
  if (few) inView.forEach(v => drawViolation(v, true, true));
  workers.forEach((_, w) => { drawWaits(w); drawHolds(laneHolds[w], rows.lanes[w], false); });
  rows.locks.forEach((r, l) => { if (shown[l]) { drawHolds(lockHolds[l], r, true); drawGaps(l, r); } });
  const lost = losses.filter(x => x.at >= view.a && x.at <= view.b);
  losses.forEach(x => drawLoss(x, lost.length <= 6));
  drawRefused();
  drawTokens();
  inView.forEach(v => drawViolation(v, false, few));
  drawFaultNames();
  cx.restore();
  drawNames();
  drawMarks();
  if (selected) { const [a, b] = clip(selected.from, selected.end), r = rows.lanes[selected.lane]; if (b > G && a < W - R) { cx.strokeStyle = css.ink; cx.lineWidth = 2; cx.strokeRect(a - 2, r.y + 3, Math.max(3, b - a) + 4, r.h - 6); } }
  if (brush) { const x = Math.min(brush.from, brush.to); cx.globalAlpha = .14; box(x, 0, Math.abs(brush.to - brush.from), H, css.ink); cx.globalAlpha = 1; }
  const whole = view.b - view.a >= T;
  frame.hidden = whole; frame.style.left = (view.a - S) / T * 100 + "%"; frame.style.width = (view.b - view.a) / T * 100 + "%";
  frame.classList.toggle("thin", (view.b - view.a) / T * strip.clientWidth < 18);
}
function drawAxis() {
  const wanted = (view.b - view.a) / (W - G) * (narrow ? 80 : 110), unit = 10 ** Math.floor(Math.log10(wanted)), step = [1, 2, 5, 10].map(n => n * unit).find(n => n >= wanted);
  const places = Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(step) + 1e-9)));
  font(11);
  for (let t = Math.ceil(view.a / step) * step; t <= view.b; t += step) {
    const x = Math.round(X(t)) + .5;
    line(x, 17, x, H - 6, css.hair);
    if (x > G + 8 && x < W - 26) text((t / 1e6).toFixed(places) + " s", x, 9, css.faint, "center"); else if (x <= G + 8) text((t / 1e6).toFixed(places) + " s", x, 9, css.faint);
  }
}
function drawNames() {
  box(0, 0, G - 1, H, css.panel);
  rows.locks.forEach((r, l) => { box(8, r.y + 5, 10, 10, shown[l] ? css.c[l % data.colours] : css.rule); font(12); text(fit(locks[l], G - 28), 23, r.y + r.h / 2 + .5, css.ink); });
  font(11);
  if (rows.tokens.h) text("tokens", 23, rows.tokens.y + rows.tokens.h / 2, css.faint);
  if (faults.length) text("faults", 8, rows.faults + 6, css.faint);
  rows.lanes.forEach((r, w) => {
    font(12, true); text(fit(name(w), G - 18), 10, r.y + r.h / 2 + .5, css.ink);
    if (document.activeElement === canvas && w === lane) box(2, r.y + 4, 3, r.h - 8, css.ink);
  });
}
function drawFaults() {
  for (const f of faults) {
    if (f.to < view.a || f.from > view.b) continue;
    const [a, b] = clip(f.from, f.to), w = Math.max(2, b - a);
    cx.globalAlpha = f.lanes.length === workers.length && workers.length > 1 ? .4 : 1; // many faults of a server must not hide the lanes
    for (const l of f.lanes) { const r = rows.lanes[l]; box(a, r.y, w, r.h, css.fault); if (f.from >= view.a) box(a, r.y, 2, r.h, css.edge); }
    cx.globalAlpha = 1;
  }
}
function drawFaultNames() {
  let free = G;
  font(11);
  faults.forEach((f, i) => {
    if (f.to < view.a || f.from > view.b) return;
    const [a, b] = clip(f.from, f.to), next = faults[i + 1], room = (next && next.from < view.b ? Math.max(X(next.from), a) : W - R) - a - 6;
    box(a, rows.faults + 14, Math.max(2, b - a), 3, css.edge);
    const s = [`F${i + 1} ${f.what}, ${span(f.to - f.from)}`, `F${i + 1} ${f.what}`, `F${i + 1}`].find((s, i) => i === 2 || cx.measureText(s).width < room), w = cx.measureText(s).width;
    if (a >= free) { text(s, Math.min(a, W - R - w), rows.faults + 6, css.soft); free = a + w + 6; }
  });
}

// Holds of 2.5 pixels and more are drawn as themselves. Narrower ones are summed: each column of 3
// pixels has a bead, whose area grows with the share of its time in which a lock was held.
const COLUMN = 3, WIDE = 2.5;
let sums = new Float32Array(0);
function drawHolds(list, r, lockRow) {
  const columns = Math.ceil((W - G) / COLUMN) + 1, n = data.colours, pixel = (view.b - view.a) / (W - G - R);
  if (sums.length < columns * n) sums = new Float32Array(columns * n);
  sums.fill(0);
  const pad = lockRow ? 2 : 6, wide = [];
  for (let i = list.first(view.a); i < list.items.length && list.items[i].from <= view.b; i++) {
    const a = list.items[i], w = (a.to - a.from) / pixel;
    if (!shown[a.lock] || a.to < view.a) continue;
    if (w >= WIDE) wide.push(a); else sums[Math.max(0, Math.floor((a.from - view.a) / pixel / COLUMN)) * n + a.lock % n] += Math.max(w, .02) / COLUMN;
  }
  const middle = r.y + r.h / 2;
  for (let c = 0; c < columns; c++) {
    let total = 0, best = 0;
    for (let k = 0; k < n; k++) { const s = sums[c * n + k]; total += s; if (s > sums[c * n + best]) best = k; }
    if (total > 0) { const high = Math.max(2, Math.sqrt(Math.min(1, total)) * (r.h - 2 * pad)); box(G + c * COLUMN, middle - high / 2, 2, high, css.c[best]); }
  }
  font(11, true);
  for (const a of wide) {
    const [x0, x1] = clip(a.from, a.to), {y, h: high} = lockRow ? {y: r.y + pad, h: r.h - 2 * pad} : spot(a);
    if (a.shared && lockRow) cx.globalAlpha = .5; // where several workers share, it is darker
    box(x0, y, Math.max(1, x1 - x0 - (x1 - x0 > 6 ? .75 : 0)), high, css.c[a.lock % n]);
    cx.globalAlpha = 1;
    const s = lockRow ? name(a.lane) : token(a);
    if (x1 - x0 > 16 && high > 8 && cx.measureText(s).width < x1 - x0 - 8) text(s, x0 + 5, y + high / 2 + .5, css.on);
    if (!lockRow && a.died && a.to < E && a.to <= view.b) { line(x1 - 4, y - 2, x1 + 4, y + high + 2, css.ink, 2); line(x1 + 4, y - 2, x1 - 4, y + high + 2, css.ink, 2); }
  }
}
function drawWaits(w) { // waits that touch each other become one line
  const r = rows.lanes[w], y = r.y + r.h / 2;
  let x0 = -1, x1 = -1;
  const flush = () => { if (x1 > x0) line(x0, y, x1, y, css.wait, 2); };
  const {items} = laneWaits[w], scale = (W - G - R) / (view.b - view.a);
  for (let i = laneWaits[w].first(view.a); i < items.length && items[i].from <= view.b; i++) {
    if (!shown[items[i].lock] || items[i].to < view.a) continue;
    const a = Math.max(G, G + (items[i].from - view.a) * scale), b = Math.min(W - R, G + (items[i].to - view.a) * scale);
    if (a > x1 + 1) { flush(); x0 = a; x1 = b; } else if (b > x1) x1 = b;
  }
  flush();
}
function drawGaps(l, r) { // the times in which nobody held a lock and a worker waited for it
  const list = lockHolds[l], wait = lockWaits[l], pixel = (view.b - view.a) / (W - G - R);
  const gap = (from, to) => {
    if (to - from < 5 * pixel) return;
    const q = wait.items[wait.first(from + 1)];
    if (!q || q.from >= to) return;
    const [a, b] = clip(Math.max(from, q.from), to);
    if (b - a < 4) return;
    cx.strokeStyle = css.gap; cx.lineWidth = 1;
    cx.setLineDash([3, 3]); cx.strokeRect(a + 1.5, r.y + 3.5, b - a - 3, r.h - 7); cx.setLineDash([]);
    font(10.5);
    const s = b - a > 90 ? `nobody, ${span(to - Math.max(from, q.from))}` : "nobody";
    if (cx.measureText(s).width < b - a - 10) text(s, (a + b) / 2, r.y + r.h / 2 + .5, css.soft, "center");
  };
  let i = list.first(view.a), held = i > 0 ? list.latest[i - 1] : S;
  for (; i < list.items.length && held <= view.b; i++) { gap(held, list.items[i].from); held = Math.max(held, list.items[i].to); }
  if (i === list.items.length) gap(held, E);
}
function drawTokens() { // of the first lock that is shown: the line rises if they are in order
  const l = shown.indexOf(true), r = rows.tokens;
  if (l < 0 || !r.h) return;
  const list = lockHolds[l].items, seen = [];
  let i = lockHolds[l].first(view.a), low = Infinity, high = -Infinity, pixel = -1;
  for (i = Math.max(0, i - 1); i < list.length && list[i].from <= view.b; i++) {
    const a = list[i], x = Math.max(G, Math.round(X(a.from) * 2)) / (X(a.from) > G ? 2 : 1);
    low = Math.min(low, a.height); high = Math.max(high, a.height);
    const back = seen.length && a.height <= seen[seen.length - 1].a.height;
    if (x === pixel && !back) seen[seen.length - 1] = {x, a}; else seen.push({x, a, back});
    pixel = x;
  }
  if (!seen.length) return;
  const Y = a => r.y + r.h - 6 - (high > low ? (a.height - low) / (high - low) : .5) * (r.h - 14);
  cx.strokeStyle = css.c[l % data.colours]; cx.lineWidth = 1.5; cx.beginPath(); cx.moveTo(seen[0].x, Y(seen[0].a));
  seen.forEach((s, k) => { if (k) cx.lineTo(s.x, Y(seen[k - 1].a)); cx.lineTo(s.x, Y(s.a)); });
  cx.lineTo(X(view.b), Y(seen[seen.length - 1].a)); cx.stroke();
  font(10.5);
  label(token(seen[seen.length - 1].a), W - R - 3, r.y + (Y(seen[seen.length - 1].a) < r.y + r.h / 2 ? r.h - 8 : 8), css.faint, "right");
  for (const s of seen) if (s.back && violations.some(v => v.b === s.a.i || v.a === s.a.i)) { cx.beginPath(); cx.arc(s.x, Y(s.a), 4, 0, 7); cx.fillStyle = css.bad; cx.fill(); if (view.b - view.a < T / 5) { font(11, true); label(token(s.a), s.x + 9, Y(s.a) - 5, css.bad); } }
}
function drawLoss(x, few) {
  const a = all[x.a], next = all[x.b], r = rows.lanes[a.lane], {y, h} = spot(a), colour = x.bad ? css.bad : css.lost;
  if (!shown[a.lock] || a.from > view.b || Math.max(a.end, next ? next.from : 0) < view.a) return;
  const [u, v] = clip(x.at, a.end), p = X(x.at);
  if (v - u > 1) { box(u, y, v - u, h, css.panel); cx.fillStyle = hatch(css.lost); cx.fillRect(u, y, v - u, h); cx.strokeStyle = css.lost; cx.lineWidth = 1; cx.strokeRect(u + .5, y + .5, v - u - 1, h - 1); }
  if (few && next && Math.abs(X(next.from) - p) > 14) {
    const g = X(next.from), o = rows.lanes[next.lane], far = Math.max(p, g) + 6, s = x.margin + (narrow ? "" : ` ${x.late ? "after" : "before"} ${name(next.lane)} was granted it`);
    line(g, Math.min(r.y + 3, o.y + 6), g, Math.max(r.y + r.h - 3, o.y + o.h - 6), colour, 1.2, [2, 2]);
    line(Math.min(p, g), r.y + 3, Math.max(p, g), r.y + 3, colour, 1.5);
    font(11, true);
    if (far + cx.measureText(s).width < W - R) label(s, far, r.y + 4, colour); else label(s, Math.min(p, g) - 6, r.y + 4, colour, "right");
  }
  cx.beginPath(); cx.moveTo(p, y - 5); cx.lineTo(p + 5, y); cx.lineTo(p, y + 5); cx.lineTo(p - 5, y); cx.closePath();
  cx.fillStyle = colour; cx.fill(); cx.strokeStyle = css.panel; cx.lineWidth = 1; cx.stroke();
}
function drawRefused() { // writes that the guard refused
  laneRefused.forEach((list, w) => {
    const y = rows.lanes[w].y + rows.lanes[w].h - 5;
    let last = -9;
    for (const q of list.within(view.a, view.b)) {
      const x = X(q.from);
      if (x - last < 5) continue; else last = x;
      cx.beginPath(); cx.arc(x, y, 4, 0, 7); cx.fillStyle = css.panel; cx.fill(); cx.strokeStyle = css.ink; cx.lineWidth = 1.4; cx.stroke();
      line(x - 2.6, y + 2.6, x + 2.6, y - 2.6, css.ink, 1.4);
    }
  });
}
function spot(a) { // where the bar of an acquisition is in its lane
  const r = rows.lanes[a.lane], n = laneRows[a.lane], h = (r.h - 12) / n;
  return {y: r.y + 6 + a.row * h, h: n > 1 ? h - 1 : h};
}
function drawViolation(v, behind, few) {
  const colour = v.bad ? css.bad : css.lost, pair = [v.a, v.b].filter(i => i >= 0).map(i => all[i]), x = X(v.at), w = Math.max(2, X(v.to) - x), last = pair.map(a => rows.lanes[a.lane]).sort((p, q) => q.y - p.y)[0], bottom = last ? last.y + last.h : H - 8;
  if (behind) { cx.globalAlpha = .16; box(x, 34, w, bottom - 34, colour); cx.globalAlpha = 1; return; }
  if (few) line(x, 32, x, bottom, colour, 1.5);
  if (few && w > 5) line(x + w, 32, x + w, bottom, colour, 1.5);
  if (v.to > v.at) {
    const r = pair.length && rows.locks[pair[0].lock];
    for (const s of pair.map(spot)) { cx.strokeStyle = colour; cx.lineWidth = few ? 2.5 : 1.5; cx.strokeRect(x, s.y, w, s.h); }
    if (!r) return;
    box(x, r.y + 1, w, r.h - 2, colour); font(11, true);
    const [a, b] = clip(v.at, v.to), s = [`${pair.length} holders, ${span(v.to - v.at)}`, String(pair.length)].find(s => cx.measureText(s).width < b - a - 6);
    if (s) text(s, (a + b) / 2, r.y + r.h / 2 + .5, css.on, "center");
  }
}
function drawMarks() { // violations first; marks that would hide each other become one
  const taken = [], inView = marks.filter(m => m.at >= view.a && m.at <= view.b), room = inView.length > 12 ? 150 : 80;
  font(11, true);
  for (const m of inView.sort((a, b) => (b.bad ? 1 : 0) - (a.bad ? 1 : 0))) {
    const x = X(m.at), near = taken.find(p => Math.abs(p.x - x) < room);
    if (near) near.more.push(m.id); else taken.push({x, m, more: []});
  }
  for (const {x, m, more} of taken) {
    const s = more.length > 2 ? `${m.id} and ${more.length} more` : [m.id, ...more].join("·"), colour = m.bad ? css.bad : css.lost, y = rows.marks + 4, w = cx.measureText(s).width, d = x + w + 14 > W ? -1 : 1;
    cx.beginPath();
    if (m.bad) { cx.moveTo(x - 7, y - 6); cx.lineTo(x + 7, y - 6); cx.lineTo(x, y + 7); } else { cx.moveTo(x, y - 6); cx.lineTo(x + 5, y); cx.lineTo(x, y + 6); cx.lineTo(x - 5, y); }
    cx.fillStyle = colour; cx.fill();
    text(s, x + 10 * d, y + .5, colour, d < 0 ? "right" : "left");
  }
}

// ---- what is under the pointer
function describe(a) {
  const x = lossOf.get(a.i), lines = [`${name(a.lane)} ${a.shared ? "shared" : "held"} ${locks[a.lock]} for ${span(a.to - a.from)}`, `token ${a.token}`, `from ${time(a.from)}, after a wait of ${span(a.from - a.called)}`];
  if (x) lines.push(`${x.id}: lost at ${time(x.at)}` + (x.b >= 0 ? `, ${x.margin} ${x.late ? "after" : "before"} the next grant` : ""));
  if (x && x.cause) lines.push(x.cause);
  if (a.died && a.to < E) lines.push("its process ended while it held the lock");
  for (const v of violations) if (v.a === a.i || v.b === a.i) lines.push(`${v.id}: ${v.title}`);
  return lines;
}
function under(x, y) {
  const w = rows.lanes.findIndex(r => y >= r.y && y < r.y + r.h), l = rows.locks.findIndex(r => y >= r.y && y < r.y + r.h), t = at(x), pixel = (view.b - view.a) / (W - G - R);
  const near = [], list = w >= 0 ? laneHolds[w] : l >= 0 ? lockHolds[l] : null;
  if (list && x >= G) for (const a of list.within(t - 3 * pixel, t + 3 * pixel)) if (shown[a.lock] && Math.max(a.end, a.from) >= t - 3 * pixel) near.push(a);
  const big = near.filter(a => (a.to - a.from) / pixel >= WIDE && a.from <= t && a.end >= t), hit = near.length === 1 ? near[0] : big[big.length - 1];
  if (hit) return {a: hit, lines: describe(hit)};
  if (near.length) return {lines: [count(near.length, "short hold"), `tokens ${token(near[0])} to ${token(near[near.length - 1])}`, `${span(near.reduce((n, a) => n + a.to - a.from, 0))} held in ${span(6 * pixel)}`]};
  const waits = w >= 0 ? [...laneWaits[w].within(t, t)].filter(q => q.to >= t && shown[q.lock]) : [], i = faults.findIndex(f => (y < 62 || w >= 0 && f.lanes.includes(w)) && t >= f.from - 2 * pixel && t <= f.to + 2 * pixel);
  const lines = i >= 0 ? [`F${i + 1} ${faults[i].what}`, `at ${time(faults[i].from)}, for ${span(faults[i].to - faults[i].from)}`] : [];
  for (const q of waits.slice(0, 3)) lines.push(`${name(w)} waits for ${locks[q.lock]}, ${span(q.to - q.from)} in all`);
  return lines.length ? {lines} : null;
}
function tell(lines, x, y) {
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((s, i) => { const e = document.createElement(i ? "span" : "b"); e.textContent = s; return e; }));
  const r = tip.getBoundingClientRect();
  tip.style.left = Math.max(2, Math.min(W - r.width - 4, x + 12)) + "px"; tip.style.top = (y + 18 + r.height > H ? y - r.height - 10 : y + 18) + "px";
}
function walk(d) { // to the next or the previous hold of the lane
  const list = laneHolds[lane].items.filter(a => shown[a.lock]);
  if (!list.length) return;
  const i = selected && selected.lane === lane ? list.indexOf(selected) + d : Math.max(0, list.findIndex(a => a.from >= view.a));
  select(list[Math.min(list.length - 1, Math.max(0, i))]);
}

// ---- pointers and keys
const fingers = new Map();
let drag = null;
canvas.addEventListener("pointerdown", e => {
  canvas.setPointerCapture(e.pointerId); fingers.set(e.pointerId, e.offsetX);
  drag = {x: e.offsetX, a: view.a, b: view.b, moved: fingers.size > 1};
  brush = fingers.size === 1 && e.pointerType !== "touch" && (e.shiftKey || e.offsetY < 40) ? {from: e.offsetX, to: e.offsetX} : null;
});
canvas.addEventListener("pointermove", e => {
  if (!fingers.has(e.pointerId)) { const u = under(e.offsetX, e.offsetY); return tell(u && u.lines, e.offsetX, e.offsetY); }
  const before = [...fingers.values()], now = [...fingers.set(e.pointerId, e.offsetX).values()];
  if (now.length === 2) return zoom(Math.abs(before[0] - before[1]) / Math.max(8, Math.abs(now[0] - now[1])), at((now[0] + now[1]) / 2));
  if (Math.abs(e.offsetX - drag.x) > 3) drag.moved = true;
  if (!drag.moved) return;
  tell(null);
  if (brush) { brush.to = Math.min(W - R, Math.max(G, e.offsetX)); return draw(); }
  const d = at(e.offsetX) - at(drag.x);
  go(drag.a - d, drag.b - d);
});
for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, e => {
  const b = brush;
  fingers.delete(e.pointerId); brush = null;
  if (fingers.size) { drag = {x: [...fingers.values()][0], a: view.a, b: view.b, moved: true}; return; }
  if (kind === "pointercancel" || !drag) return draw();
  if (b && drag.moved) return go(at(Math.min(b.from, b.to)), at(Math.max(b.from, b.to)));
  if (drag.moved) return;
  const u = under(e.offsetX, e.offsetY);
  select(u && u.a || null);
  tell(u && u.lines, e.offsetX, e.offsetY);
});
canvas.addEventListener("pointerleave", () => tell(null));
canvas.addEventListener("dblclick", e => zoom(e.shiftKey ? 4 : .25, at(e.offsetX)));
canvas.addEventListener("wheel", e => {
  if (e.ctrlKey || e.metaKey || document.activeElement === canvas && Math.abs(e.deltaY) > Math.abs(e.deltaX)) { e.preventDefault(); zoom(Math.exp(Math.sign(e.deltaY) * Math.min(60, Math.abs(e.deltaY)) * .006), at(e.offsetX)); }
  else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) { e.preventDefault(); pan(e.deltaX / (W - G)); }
}, {passive: false});
const keys = {
  ArrowLeft: () => pan(-.15), ArrowRight: () => pan(.15), "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), "0": () => go(S, E),
  Home: () => go(S, S + view.b - view.a), End: () => go(E - view.b + view.a, E), n: () => step(1), p: () => step(-1), ".": () => walk(1), ",": () => walk(-1),
  ArrowUp: () => { lane = Math.max(0, lane - 1); selected = null; draw(); }, ArrowDown: () => { lane = Math.min(workers.length - 1, lane + 1); selected = null; draw(); },
  Escape: () => { select(null); canvas.blur(); },
};
canvas.addEventListener("keydown", e => { const f = keys[e.key]; if (f && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); f(); } });
for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, draw);
document.querySelectorAll(".controls button").forEach(b => b.addEventListener("click", () => keys[b.dataset.key]()));
$("find").addEventListener("keydown", e => { if (e.key === "Enter" && e.target.value.trim()) find(e.target.value); });
document.querySelectorAll(".legend input").forEach(c => c.addEventListener("change", () => { shown[+c.value] = c.checked; draw(); }));

// The strip: a drag moves the frame or one of its ends, or draws a new frame.
let hold = null;
const stripTime = e => { const r = strip.getBoundingClientRect(); return Math.min(E, Math.max(S, S + (e.clientX - r.left) / r.width * T)); };
strip.addEventListener("pointerdown", e => {
  const t = stripTime(e), near = 9 / strip.clientWidth * T, whole = view.b - view.a >= T;
  strip.setPointerCapture(e.pointerId);
  hold = !whole && Math.abs(t - view.a) < near ? {end: view.b} : !whole && Math.abs(t - view.b) < near ? {end: view.a} : !whole && t > view.a && t < view.b ? {offset: t - view.a} : {end: t, click: true};
});
strip.addEventListener("pointermove", e => {
  if (!hold) return;
  const t = stripTime(e);
  if (hold.offset !== undefined) return go(t - hold.offset, t - hold.offset + view.b - view.a);
  if (Math.abs(t - hold.end) > 3 / strip.clientWidth * T) hold.click = false;
  if (!hold.click) go(Math.min(t, hold.end), Math.max(t, hold.end));
});
for (const kind of ["pointerup", "pointercancel"]) strip.addEventListener(kind, e => {
  if (hold && hold.click && kind === "pointerup") { const t = stripTime(e), wide = Math.min(view.b - view.a, T / 10); go(t - wide / 2, t + wide / 2); }
  hold = null;
});
document.querySelectorAll("a[href^='#t=']").forEach(a => a.addEventListener("click", e => {
  e.preventDefault(); open(a.hash);
  document.querySelector(".timeline").scrollIntoView({block: "start"}); canvas.focus({preventScroll: true});
}));
addEventListener("hashchange", () => open(location.hash));
for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) matchMedia(query).addEventListener("change", () => { layout(); draw(); });
new ResizeObserver(() => { if (canvas.parentNode.clientWidth !== W) { layout(); draw(); } }).observe(canvas.parentNode);
layout(); open(location.hash);
})();

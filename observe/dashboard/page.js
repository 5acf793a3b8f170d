// The page while JavaScript works: one event after each look of the server, drawn into the same
// elements that the server wrote. All text goes through textContent.
const $ = id => document.getElementById(id);
const strip = 5 * 60e3, kept = 120, chart = 10 * 60e3, svgns = "http://www.w3.org/2000/svg";
const mayBreak = document.body.dataset.mode === "break";
const input = document.querySelector("input[name=filter]");
const rows = new Map(), colours = new Map(); // rows by name; places of hosts
let source, retry, latest, received = 0, base = 0, points = [], fresh = true, wantJobs = recall("jobs") === "1";

// A token arrives in the fragment, which no server and no log sees, and leaves the address bar.
if (location.hash.startsWith("#token=")) {
	remember("token", location.hash.slice(7));
	history.replaceState(null, "", location.pathname + location.search);
}

function remember(key, value) { try { sessionStorage.setItem("fencelock " + key, value); } catch { /* private window */ } }
function recall(key) { try { return sessionStorage.getItem("fencelock " + key) ?? ""; } catch { return ""; } }

// make returns an element. Children are elements or text.
function make(tag, props = {}, ...children) {
	const e = Object.assign(document.createElement(tag), props);
	e.append(...children);
	return e;
}

function draw(tag, attributes = {}) {
	const e = document.createElementNS(svgns, tag);
	for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
	return e;
}

// plain shows characters that cannot be seen as escapes: some change the order of the text around them.
function plain(text) {
	return text.replace(/[\p{C}\p{Zl}\p{Zp}\u00a0\u115f\u1160\u3164\ufe00-\ufe0f]/gu, c => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
}

function span(ms) {
	const s = Math.max(0, ms) / 1e3;
	if (s < 10) return s.toFixed(1) + " s";
	if (s < 120) return Math.floor(s) + " s";
	if (s < 7200) return Math.floor(s / 60) + " min";
	return s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
}

function now() { return latest.now + performance.now() - received; }
function clock(time) { return time > "0002" ? new Date(time).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" }) : "–"; } // the zero time of Go is in the year 1
function process(x) { return x.foreign && !(x.host && x.owner === x.host) ? "another program" : plain(x.host) || "unknown"; }

// colour returns the colour of a host, in the order in which hosts appear.
function colour(host) {
	if (!colours.has(host)) colours.set(host, colours.size % 8);
	return `var(--h${colours.get(host)})`;
}

// The connection. A hidden window has none, so it costs nothing.

function connect() {
	clearTimeout(retry);
	source?.close();
	if (document.hidden) return say("hid", "paused");
	const wanted = new URLSearchParams();
	if (input.value) wanted.set("filter", input.value);
	if (wantJobs) wanted.set("jobs", "1");
	source = new EventSource("events?" + wanted);
	source.onopen = () => { fresh = true; };
	source.onmessage = e => { say("live", "live"); update(JSON.parse(e.data)); };
	source.onerror = () => {
		say("off", "no connection");
		if (source.readyState === EventSource.CLOSED) retry = setTimeout(connect, 3000);
	};
}

function say(kind, text) {
	$("state").className = kind;
	$("state").textContent = text;
}

document.addEventListener("visibilitychange", connect);
document.addEventListener("keydown", e => {
	if (e.key === "/" && !e.ctrlKey && !e.metaKey && !e.target.closest("input, textarea, dialog")) {
		e.preventDefault();
		input.select();
	} else if (e.key === "Escape" && e.target === input) {
		input.value = "";
		refilter();
		input.blur();
	}
});

let typing;
function refilter() {
	clearTimeout(typing);
	typing = setTimeout(() => {
		history.replaceState(null, "", input.value ? "?" + new URLSearchParams({ filter: input.value }) : location.pathname);
		connect();
	}, 200);
}
input.addEventListener("input", refilter);
input.form.addEventListener("submit", e => e.preventDefault());

// What an event changes.

function update(u) {
	[latest, received] = [u, performance.now()];
	base ||= u.now;
	const again = fresh || u.points.some(p => p[1] < 0);
	if (fresh) points = [];
	fresh = false;
	points.push(...u.points);
	points = points.filter(p => p[0] > u.now - chart);
	tiles(u);
	panels(u);
	table(u, again);
	tick();
}

function tile(id, value, level = "") {
	$(id).className = level;
	$(id).lastElementChild.textContent = value.toLocaleString("en");
}

function tiles(u) {
	tile("held", u.held);
	tile("waiting", u.waiting, u.waiting ? "warn" : "");
	tile("longest", u.longest_wait ? span(u.longest_wait) : "–", u.longest_wait > 30e3 ? "bad" : u.longest_wait > 5e3 ? "warn" : "");
	tile("oldest", u.oldest ? span(u.oldest) : "–");
	tile("lost", u.lost, u.lost ? "bad" : "");
	tile("names", u.names);
	$("trouble").textContent = u.error ? plain(u.error) : "";
}

// panel returns a panel, and creates it at the first call.
function panel(id, title, shown, wide) {
	let p = $(id);
	if (!shown) return p?.remove();
	if (!p) {
		p = make("section", { id, className: wide ? "panel wide" : "panel" }, make("h2", { textContent: title }), make("div"));
		const order = ["chart", "hot", "elections", "jobs"], after = [...$("live").children].find(c => order.indexOf(c.id) > order.indexOf(id));
		$("live").insertBefore(p, after ?? null);
	}
	return p.lastElementChild;
}

function panels(u) {
	lines(panel("chart", "Holders and waiters, last 10 minutes", true));
	const hot = panel("hot", "Hot names, by time others waited for them", true);
	const most = Math.max(1, ...u.hot.map(h => h.waited));
	hot.replaceChildren(u.hot.length ? make("ul", { className: "hot" }, ...u.hot.map(h => make("li", {},
		make("span", { textContent: plain(h.name), title: plain(h.name) }), make("progress", { max: most, value: h.waited, ariaLabel: "time waited" }), make("em", { textContent: span(h.waited * 1e3) })))) :
		make("p", { className: "soft", textContent: "No request has waited for a second." }));
	const elections = u.elections ?? [];
	panel("elections", "Leaders", elections.length, true)?.replaceChildren(grid(["election", "leader", "term", "for", "candidates waiting", "terms in 5 minutes"], elections.map(e => {
		const leader = e.holders[0];
		return [plain(e.name), leader ? plain(`${process(leader)} ${leader.note ?? ""}`) : make("span", { className: "chip late", textContent: e.trouble ? "unknown" : "nobody leads" }),
			leader?.token ?? "–", leader?.since ? span(u.now - leader.since) : "–", e.waiting, e.strip.length];
	})));
	const jobs = panel("jobs", "Jobs", wantJobs, true);
	if (jobs && u.job_error) jobs.replaceChildren(make("p", { className: "soft", textContent: plain(u.job_error) }));
	else jobs?.replaceChildren(!u.jobs_read ? "reading…" : !u.jobs ? "No job is known." : grid(["job", "last tick", "result", "host", "took", "next", "note"], u.jobs.map(j => {
		const run = j.Last ?? {};
		return [plain(j.Job), clock(j.Tick), make("span", { className: run.state === "failed" || run.state === "lost" ? "chip late" : "", textContent: run.state ?? "–" }), plain(run.host ?? ""),
			run.ended ? span(Date.parse(run.ended) - Date.parse(run.started)) : "–", clock(j.Next), plain(j.Paused ? `paused by ${j.Paused.host}: ${j.Paused.reason}` : run.error ?? "")];
	})));
}

function grid(head, body) {
	return make("table", {}, make("thead", {}, make("tr", {}, ...head.map(h => make("th", { textContent: h })))),
		make("tbody", {}, ...body.map(cells => make("tr", {}, ...cells.map((c, i) => { const td = make("td", {}, c); td.dataset.head = head[i]; return td; })))));
}

// lines draws the chart. Where nobody looked, it has a gap.
function lines(box) {
	const most = Math.max(0, ...points.map(p => Math.max(p[1], p[2]))), scale = Math.max(4, most), to = latest.now, svg = draw("svg", { class: "chart", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img" });
	for (const y of [1, 50, 99]) svg.append(draw("line", { class: "rules", x1: 0, x2: 1000, y1: y, y2: y }));
	for (const [column, name] of [[1, "h"], [2, "w"]]) {
		let line = "", area = "", first = 0, last = 0;
		const close = () => { if (line) area += `L${last} 99L${first} 99Z`; };
		for (const p of points) {
			if (p[1] < 0) { close(); last = 0; continue; }
			const x = ((1 - (to - p[0]) / chart) * 1000).toFixed(1), at = `${x} ${(99 - 98 * p[column] / scale).toFixed(1)}`;
			if (!last) first = x;
			line += (last ? "L" : "M") + at;
			area += (last ? "L" : `M${x} 99L`) + at;
			last = x;
		}
		close();
		svg.append(draw("path", { class: "area " + name, d: area }), draw("path", { class: "line " + name, d: line }));
	}
	box.replaceChildren(svg);
	box.previousElementSibling.replaceChildren("Holders and waiters, last 10 minutes", make("b", { className: "h", textContent: `${latest.held.toLocaleString("en")} held` }), make("b", { className: "w", textContent: `${latest.waiting.toLocaleString("en")} waiting` }),
		make("span", { className: "soft", textContent: ` · most ${most.toLocaleString("en")} · ${latest.rate} acquired a minute` + (latest.late ? ` · renewals late: ${latest.late}` : "") }));
}

// The table.

const body = $("locks").tBodies[0];
body.replaceChildren();
$("foot").textContent = "";

function table(u, again) {
	for (const data of u.rows) {
		const row = rows.get(data.name) ?? create(data.name);
		row.data = data;
		fill(row);
	}
	if (again) for (const row of rows.values()) past(row);
	const shown = new Set(u.order);
	for (const [name, row] of rows) {
		if (!shown.has(name)) {
			row.tr.remove();
			rows.delete(name);
		}
	}
	if (body.matches(":hover") && body.children.length === u.order.length) return foot(u); // no row moves from under the pointer
	let at = body.firstElementChild;
	for (const name of u.order) {
		const tr = rows.get(name).tr;
		if (tr === at) at = at.nextElementSibling;
		else body.insertBefore(tr, at);
	}
	foot(u);
}

function foot(u) {
	const text = u.matching === 0 ? (input.value ? "No name, host or note matches the filter. " : "No lock is held or waited for. ") :
		u.matching > u.order.length ? `${u.order.length} of ${u.matching} names are shown, the longest waits first; use the filter for others. ` : "";
	const button = $("foot").querySelector("button") ?? make("button", { type: "button", onclick() { wantJobs = !wantJobs; remember("jobs", wantJobs ? "1" : ""); connect(); if (latest) panels(latest); foot(latest); } });
	button.textContent = wantJobs ? "Hide jobs" : "Show jobs";
	if (!button.isConnected) $("foot").append("", button);
	$("foot").firstChild.textContent = `${text}Looked in ${u.took} ms.`;
}

function create(name) {
	const row = { tr: make("tr"), name: make("th", { scope: "row" }), held: make("td", { className: "held" }), age: make("td", { className: "n" }), lease: make("td", { className: "lease" }), past: make("td", { className: "past" }), queue: make("td", { className: "queue" }), act: make("td", { className: "act" }) };
	row.tr.append(row.name, row.held, row.age, row.lease, row.past, row.queue, row.act);
	row.act.append(mayBreak ? make("button", { type: "button", textContent: "Take away…", onclick: () => ask(row.data) }) : "");
	rows.set(name, row);
	return row;
}

// fill draws what has changed. Ages and leases, which change all the time, are left to tick.
function fill(row) {
	const d = row.data;
	[row.ages, row.leases, row.most] = [[], [], []];
	const aged = (e, since, before = "") => { row.ages.push([e, since, before]); return e; };
	row.name.replaceChildren(plain(d.name));
	if (d.kind && d.kind !== "lock") row.name.append(make("span", { className: "chip mode", textContent: plain(d.kind) }));
	const used = d.holders.reduce((n, h) => n + (h.weight || 1), 0);
	if (d.limit) row.name.append(make("span", { className: used < d.limit ? "chip mode" : "chip mode full", textContent: `${used} of ${d.limit}` }));
	else if (d.shared) row.name.append(make("span", { className: "chip mode", textContent: "shared" }));
	if (d.trouble) row.name.append(make("div", { className: "chip late", textContent: "may be incomplete", title: plain(d.trouble) }));
	row.held.replaceChildren(...d.holders.map(h => {
		const dot = make("i", { className: "dot" });
		dot.style.setProperty("--c", colour(h.host));
		return make("div", { title: plain(`${process(h)} ${h.pid || ""} ${h.note ?? ""}, token ${h.token}, owner ${h.owner}`) }, dot, process(h), make("small", { textContent: ` ${h.pid || ""} ${plain(h.note ?? "")}` }));
	}));
	if (!d.holders.length) row.held.append(make("small", { textContent: d.not_before ? "closed by a minimum hold" : "free" }));
	row.age.replaceChildren(...d.holders.map(h => h.since ? aged(make("div"), h.since) : make("div", { textContent: "–" })));
	row.lease.replaceChildren(...d.holders.map(h => {
		const most = h.most ? [make("small", { className: "soft" })] : [];
		for (const e of most) row.most.push([e, h]);
		if (!h.ends) return make("div", {}, make("small", { className: "soft", textContent: "no lease " }), ...most);
		const bar = make("progress", { max: h.lease || 1, ariaLabel: "lease left" });
		row.leases.push([bar, h]);
		return make("div", {}, bar, ...(h.late ? [make("small", { textContent: h.late + " late" })] : []), ...most);
	}));
	row.queue.replaceChildren(...d.waiters.map(w => make("span", { className: "chip", title: plain(`${w.host} ${w.pid ?? ""} ${w.note ?? ""}`) }, aged(make("span"), w.since, `${w.position} ${process(w)} `))).flatMap(e => [e, " "]));
	if (d.waiting > d.waiters.length) row.queue.append(make("span", { className: "chip more", textContent: `+${d.waiting - d.waiters.length}` }));
	if (d.rate >= 1) row.queue.append(make("small", { className: "soft", textContent: ` ${Math.round(d.rate)} a minute` }));
	row.act.classList.toggle("none", !d.holders.length);
	if (mayBreak) row.act.firstElementChild.disabled = !d.holders.length;
	past(row);
}

// past draws the last five minutes. Times are counted from the first event, since SVG is not precise
// enough for those of a clock. What was not looked at is not drawn as free.
function past(row) {
	const svg = draw("svg", { viewBox: `0 0 ${strip} 10`, preserveAspectRatio: "none", role: "img", "aria-label": `${row.data.strip.length} holds` });
	row.moving = draw("g");
	let before = base - strip; // not much earlier: browsers clamp what is drawn far outside
	for (const p of points) {
		if (p[1] < 0 && p[0] > before) row.moving.append(draw("rect", { class: "gap", x: before - base, y: 0, width: p[0] - before, height: 10 }));
		before = Math.max(before, p[0]);
	}
	const first = row.data.strip.length < kept ? 0 : row.data.strip[0].from; // the server does not keep more holds
	if (first > base - strip) row.moving.append(draw("rect", { class: "gap", x: -strip, y: 0, width: first - base + strip, height: 10 }));
	for (const s of row.data.strip) {
		const from = Math.max(s.from, base - 2 * strip), bar = draw("rect", { x: from - base, y: 0, width: s.to ? Math.max(s.to - from, strip / 300) : 1e9, height: 10 });
		bar.style.setProperty("--c", colour(s.host));
		if (s.lost) row.moving.append(draw("rect", { class: "gone", x: s.to - base, y: 0, width: strip / 120, height: 10 }));
		row.moving.prepend(bar);
	}
	row.moving.prepend(...row.moving.querySelectorAll(".gap"));
	svg.append(row.moving);
	row.past.replaceChildren(svg);
}

// tick moves what moves by itself.
function tick() {
	if (!latest || document.hidden || source?.readyState !== EventSource.OPEN) return;
	const at = now(), silent = performance.now() - received;
	if (silent > Math.max(5e3, 15 * latest.took)) say("off", `no news for ${span(silent)}`);
	for (const row of rows.values()) {
		for (const [e, since, before] of row.ages) e.textContent = before + (since ? span(at - since) : "");
		for (const [bar, h] of row.leases) {
			bar.value = Math.max(0, h.ends - at);
			bar.className = bar.value < h.lease / 2 ? "late" : "";
		}
		for (const [e, h] of row.most) e.textContent = h.most > at ? ` at most ${span(h.most - at)} more` : " maximum hold is over";
		row.moving.setAttribute("transform", `translate(${strip - (at - base)} 0)`);
	}
}
setInterval(tick, 500);

// The one action.

function ask(d) {
	const field = (text, e) => make("label", {}, make("span", { textContent: text }), e);
	const owner = make("select", { name: "owner" }, ...d.holders.map(h => make("option", { value: h.owner, textContent: `${process(h)} ${h.pid || ""} ${plain(h.note ?? "")} (token ${h.token})` })));
	const name = make("input", { autocomplete: "off", spellcheck: false, name: "typed" }), reason = make("input", { name: "reason", maxLength: 500 }), token = make("input", { type: "password", name: "token", autocomplete: "off" });
	const said = make("p", { className: "said", role: "alert" }), cancel = make("button", { type: "button", textContent: "Cancel", onclick: () => box.close() }), go = make("button", { className: "danger", textContent: "Take away", disabled: true });
	const secret = field("token, which fencelock ui printed", token);
	secret.hidden = true;
	const form = make("form", { method: "dialog" }, make("h2", { textContent: "Take a lock away" }),
		make("p", { textContent: "The next waiter gets the lock at once. A holder that cannot be reached works on until its deadline: only a guard that checks tokens refuses its writes." }),
		field("holder", owner), field(`type the name of the lock: ${plain(d.name)}`, name), field("reason, which the holder reports", reason), secret, said, make("footer", {}, cancel, go));
	const box = make("dialog", { onclose: () => box.remove() }, form);
	form.oninput = () => { go.disabled = name.value !== plain(d.name) || !reason.value.trim(); };
	form.onsubmit = async e => {
		e.preventDefault();
		go.disabled = true;
		if (token.value) remember("token", token.value);
		const answer = await take({ name: d.name, owner: owner.value, reason: reason.value });
		said.textContent = plain(answer.text);
		if (answer.status === 401) secret.hidden = false;
		if (!answer.token) { go.disabled = false; return; }
		said.className = "done";
		said.append(" New token: ", make("code", { textContent: answer.token }), ". Write it to the resource that the lock protects, so that it refuses the old holder.");
		go.remove();
		cancel.textContent = "Close";
	};
	document.body.append(box);
	box.showModal();
	name.focus();
}

// take asks the server, and returns what it said.
async function take(order) {
	const headers = { "Content-Type": "application/json" }, token = recall("token");
	if (token) headers.Authorization = "Bearer " + token;
	try {
		const r = await fetch("break", { method: "POST", headers, body: JSON.stringify(order) });
		if (!r.ok) return { status: r.status, text: (await r.text()).trim() };
		const answer = await r.json();
		return { status: 200, text: answer.warning ?? "The lock was taken away.", token: answer.token };
	} catch (e) {
		return { status: 0, text: String(e) };
	}
}

connect();

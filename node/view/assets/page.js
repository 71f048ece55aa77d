// The page: draws /status as it streams in, and /history when an epoch is new. Every name here may be a
// stranger's, so text goes in by textContent alone.

import { $, Chart, clock, make, moments, onClock, short, ticks } from "./chart.js";

const drawn = (tag, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
// The same text again would be read aloud again.
const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const fill = (node, children) => node.replaceChildren(...children.filter(Boolean));
const last6 = (peer) => (peer ? [...peer].slice(-6).join("") : "–");
const whole = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
const bytes = (number) => `${short(number)}${/[kMGT]$/.test(short(number)) ? "" : " "}B`;
const span = (ms) => {
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
};

const LOSS = [
  { name: "training, this node", watched: "training, mean of what members say", key: "loss", color: "blue", width: 1.6 },
  { name: "held-out", key: "held_out", error: "held_out_error", color: "orange", width: 2.8 },
  { name: "entropy of the source", key: "floor", color: "muted", width: 1.4, dash: [6, 5], labelled: "below" },
];
// What the best guesses cost; the scale of the chart does not follow them.
const GUESSES = [
  { name: "best guess from the last token", key: "bigram" },
  { name: "best guess from no token", key: "unigram" },
].map((one) => ({ ...one, color: "muted", width: 1.2, dash: [2, 4], labelled: "above", aside: true }));
const PARTS = [
  { name: "train", key: "train_ms", color: "blue" },
  { name: "wait for others", key: "wait_ms", color: "amber" },
  { name: "attempts without a decision", key: "retry_ms", color: "red" },
  { name: "ring", key: "ring_ms", color: "teal" },
  { name: "votes", key: "vote_ms", color: "orange" },
  { name: "apply", key: "apply_ms", color: "muted" },
];
const TRAFFIC = [
  { name: "sent", key: "sent_bytes", color: "blue" },
  { name: "received", key: "received_bytes", color: "teal" },
  { name: "sent by data-parallel training", key: "parallel_bytes", color: "amber", width: 1.4, dash: [6, 5] },
];
const STRIP = 50;
const AGREES = {
  true: ["same", "another peer has the same state"], false: ["differs", "another peer has another state"],
  null: ["unknown", "nothing has said yet whether others have this state"],
};

// A folder of files has what was seen last; a server answers with what is seen now.
const still = "still" in document.documentElement.dataset;
let state = null, past = null, recent = null, wanted = [null, null];
let at = 0, asked = null, busy = false, away = false;

const axis = () => $("axis").value;
const isTime = () => axis() === "t_ms";
const title = (columns, i) =>
  `epoch ${columns.epoch[i]} · ${short(columns.tokens[i])} tokens · ${clock(columns.t_ms[i])}`;
const seconds = (y) => `${short(y)} s`;
const loss = new Chart($("loss"), {
  x: (x, span) => (isTime() ? onClock(x, span) : short(x)),
  ticks: (...range) => (isTime() ? moments : ticks)(...range),
  y: short, value: (y) => y.toFixed(4), title: (i) => title(past, i), onzoom: zoom,
});
const times = new Chart($("times"), {
  bars: true, x: whole, y: seconds, title: (i) => title(recent, i),
});
const traffic = new Chart($("traffic"), {
  zero: true, x: whole, y: bytes, value: bytes, title: (i) => title(past, i),
});

/** The series that have a number, with the columns that hold it. A band is a standard error, else what a point was merged of. */
function series(list, { columns }, scale = 1) {
  const scaled = (y) => y?.map((v) => (v === null ? null : v * scale));
  const apart = (y, error, sign) => y.map((v, at) => (v === null || error[at] === null ? null : v + sign * error[at]));
  return list.filter((one) => columns[one.key]).map((one) => {
    const [y, error] = [columns[one.key], columns[one.error]];
    const ends = error ? [apart(y, error, -1), apart(y, error, 1)] : [columns[`${one.key}_min`], columns[`${one.key}_max`]];
    const [min, max] = ends.map(scaled);
    return { ...one, name: error ? `${one.name} ± standard error` : one.name, y: scaled(y), min, max };
  });
}

function key(node, list, box) {
  fill(node, list.map((one) => {
    const item = make("li");
    const mark = make("i", undefined, box ? { class: "box" } : {});
    mark.style.background = `var(--${one.color})`;
    item.append(mark, one.name);
    return item;
  }));
}

function charts() {
  if (!past) return;
  const watches = state.node.watches;
  const lines = series(LOSS, past).map((one) => (watches && one.watched ? { ...one, name: one.watched } : one));
  const marks = past.marks.map((mark) => ({ x: mark[axis()], kind: mark.kind, text: mark.text }));
  loss.log = $("log").checked;
  const held = state.held_out;
  const guesses = GUESSES.filter((one) => Number.isFinite(held?.[one.key]))
    .map((one) => ({ ...one, y: past.epoch.map(() => held[one.key]) }));
  loss.set(past[axis()], [...lines, ...guesses], marks);
  key($("loss-key"), lines.filter((one) => !one.labelled));
  const parts = series(PARTS, recent, 0.001);
  const shown = parts.filter((one) => one.y.some((y) => y > 0));
  times.set(recent.epoch, shown);
  key($("times-key"), shown, true);
  const moved = series(TRAFFIC, past);
  // What was sent and what would have been are powers of ten apart.
  traffic.log = Boolean(past.columns.parallel_bytes);
  traffic.set(past.epoch, moved);
  key($("traffic-key"), moved);
  const [sent, parallel] = ["sent_bytes", "parallel_bytes"].map((name) => recent.columns[name]?.reduce((sum, n) => sum + n, 0));
  $("saved").hidden = !(sent > 0 && parallel > 0);
  $("saved").textContent = $("saved").hidden ? "" : `In the last ${recent.epoch.length === 1 ? "epoch" : `${recent.epoch.length} epochs`} this node sent ${bytes(sent)}. `
    + `Data-parallel training would have sent ${bytes(parallel)} for the same steps, ${short(parallel / sent)} times as much.`;
}

/** What the charts have to follow: the last commit, and what was measured after it. */
const newest = () => [state.head.epoch, state.head.state, state.held_out?.epoch, state.held_out?.loss].join(" ");

async function load() {
  if (busy || !state) return;
  busy = true;
  const wants = newest();
  try {
    const head = state.head.epoch;
    const [from, to] = wanted;
    const range = from === null ? "" : `&from=${from}&to=${to}`;
    const get = async (query) => still ? part(await (await fetch("history.json")).json(), new URLSearchParams(query))
      : (await fetch(`history?${query}`)).json();
    [past, recent] = await Promise.all([
      get(`points=1500${range}`), get(`points=${STRIP}&from=${Math.max(0, head - STRIP + 1)}`),
    ]);
    asked = wants;
    charts();
  } catch { /* The next picture asks again. */ }
  busy = false;
  // What came meanwhile may have been the last picture.
  if (asked === wants && newest() !== wants) load();
}

/** The rows of a history between two epochs. */
function part(all, query) {
  const from = Number(query.get("from") ?? 0), to = Number(query.get("to") ?? Infinity);
  const keep = (column) => column.filter((_, i) => all.epoch[i] >= from && all.epoch[i] <= to);
  const columns = Object.entries(all.columns).map(([name, column]) => [name, keep(column)]);
  return { ...all, epoch: keep(all.epoch), t_ms: keep(all.t_ms), tokens: keep(all.tokens), columns: Object.fromEntries(columns) };
}

/** Shows the part between two values of the axis, or all. */
function zoom(low, high) {
  const near = (x) => past.epoch[past[axis()].findIndex((y) => y >= x)] ?? past.epoch.at(-1);
  wanted = low === null ? [null, null] : [Math.max(0, near(low) - 1), near(high) + 1];
  load();
}

function fact(label, value) {
  const item = make("li", `${label} `);
  item.append(make("b", value));
  return item;
}

function verdict() {
  const { head, ring, node, open, agreement, pace, counts } = state;
  $("verdict").dataset.mood = away ? "ended" : state.verdict.mood;
  put($("sentence"), away ? "No connection: this is what was shown last." : state.verdict.sentence);
  put($("cure"), state.verdict.cure ?? "");
  $("cure").hidden = away || !state.verdict.cure;
  const inside = node.watches ? "" : `, this node ${ring.some((seat) => seat.peer === node.peer) ? "too" : "not"}`;
  const agree = agreement.differing ? `no: ${agreement.differing} differ`
    : agreement.compared ? `yes, in ${whole(agreement.compared)} comparisons`
      : agreement.epochs.some(([, agrees]) => agrees) ? "yes, the rings began from them" : "no other state was reported";
  const rate = state.source.live ? 1 : state.source.speed;
  const left = away || state.next_ms === null ? null : state.next_ms - (performance.now() - at) * rate;
  fill($("facts"), [
    head.epoch > 0 && fact("last commit", `epoch ${whole(head.epoch)}`),
    ring.length > 0 && fact("last ring", `${ring.length} members${inside}`),
    fact("states agree", agree),
    left !== null && fact("next commit", left > 0 ? `in about ${span(left)}` : "is due"),
    state.left_ms !== null && !away && fact("time left", `about ${span(state.left_ms)}`),
    open.attempt > 1 && fact("attempt", String(open.attempt)),
    node.reachability && fact("others reach this node", node.reachability),
    counts.forks > 0 && fact("forks", `${counts.forks}, ${counts.undone_epochs} epochs undone`),
  ]);
}

function tiles() {
  const { head, pace, counts, run, node, training, held_out: held, fetch: coming } = state;
  const share = run.stop_tokens && Math.floor(100 * Math.min(1, head.tokens / run.stop_tokens));
  const entries = [
    ["epochs committed", whole(head.epoch)],
    ["tokens", short(head.tokens), run.stop_tokens && `of ${short(run.stop_tokens)} (${share} %)`],
    ["tokens a second, whole run", pace.tokens_per_s === null ? "–" : short(pace.tokens_per_s)],
    ["an epoch takes", pace.epoch_ms === null ? "–" : span(pace.epoch_ms)],
    [node.watches ? "training loss, as members say" : "training loss", head.loss === null ? "–" : head.loss.toFixed(3)],
    training && ["this epoch", `${Math.floor(100 * training.share)} %`,
      training.tokens_per_s === null ? "" : `${short(training.tokens_per_s)} tokens/s here`],
    held && ["held-out loss", held.loss?.toFixed(3) ?? "–",
      [held.error && `± ${held.error.toFixed(3)}`, held.excess && `+${held.excess.toFixed(3)} over floor`].filter(Boolean).join(", ")],
    !node.watches && ["left out", whole(counts.left_out), `of ${whole(counts.commits)} epochs`],
    coming && ["fetched", `${Math.floor((100 * coming.have_bytes) / (coming.want_bytes || 1))} %`, bytes(coming.want_bytes)],
  ].filter(Boolean).slice(0, 8);
  fill($("progress"), entries.map(([name, value, note]) => {
    const tile = make("div");
    const number = make("dd", value);
    if (note) number.append(" ", make("small", note));
    tile.append(make("dt", name), number);
    return tile;
  }));
}

/** What is known of the way from one seat to the next: the rate is the sender's word, a round trip only this node's own. */
function way(from, to) {
  const { node: { peer: me }, peers, own_ring: own } = state;
  const rate = from !== me ? peers[from]?.send_rate
    : own?.to === to ? (1000 * own.sent_bytes) / Math.max(1, own.took_ms) : null;
  const ms = peers[from === me ? to : to === me ? from : null]?.rtt_ms;
  return [rate && `${bytes(rate)}/s`, Number.isFinite(ms) && `${whole(ms)} ms`].filter(Boolean);
}

function ring() {
  const { ring: seats, node } = state;
  const many = seats.length > 23;
  const most = Math.max(1, ...seats.map((seat) => seat.tokens));
  const place = (i, r) => {
    const angle = (2 * Math.PI * i) / seats.length - Math.PI / 2;
    return [r * Math.cos(angle) * 1.12, r * Math.sin(angle)];
  };
  const parts = [drawn("ellipse", { class: "orbit", rx: 84 * 1.12, ry: 84 })];
  seats.forEach((seat, i) => {
    const [x, y] = place(i, 84);
    const radius = many ? 2.5 : 5 + 8 * Math.sqrt(seat.tokens / most);
    const dot = drawn("circle", { class: seat.peer === node.peer ? "seat me" : "seat", cx: x, cy: y, r: radius });
    const next = seats[(i + 1) % seats.length].peer;
    const known = seats.length > 1 ? way(seat.peer, next) : [];
    const told = known.length ? `to ${last6(next)} ${known.join(", ")}` : "";
    dot.append(drawn("title", {}, `${seat.peer}: ${whole(seat.tokens)} tokens${told && `; ${told}`}`));
    if (!many && seats.length > 1) {
      const [ax, ay] = place(i + 0.5, 84);
      const turn = (360 * (i + 0.5)) / seats.length;
      const arrow = drawn("path", { class: "arrow", d: "M-4 -4 L5 0 L-4 4 Z", transform: `translate(${ax} ${ay}) rotate(${turn})` });
      arrow.append(drawn("title", {}, `${last6(seat.peer)} ${told || `to ${last6(next)}`}`));
      parts.push(arrow);
      // Beside more arrows the words would stand over one another.
      if (seats.length <= 6) {
        const [x, y] = place(i + 0.5, 60);
        known.forEach((text, line) => parts.push(drawn("text", { class: "way", x, y: y + 4 + 10 * line }, text)));
      }
    }
    parts.push(dot);
    if (!many) {
      const [tx, ty] = place(i, 118);
      parts.push(drawn("text", { x: tx, y: ty + 4 }, last6(seat.peer)));
    }
  });
  if (seats.length) {
    parts.push(drawn("text", { y: -2 }, `epoch ${whole(state.head.epoch)}`));
    parts.push(drawn("text", { y: 14, class: "muted" }, `attempt ${state.head.attempt}`));
  }
  fill($("ring"), parts);
  const own = state.own_ring;
  const edge = own && own.of > 1
    ? `; to ${last6(own.to)} ${bytes((1000 * own.sent_bytes) / Math.max(1, own.took_ms))}/s` : "";
  $("ring-note").textContent = seats.length ? `clockwise; area is weight${node.watches ? "" : ", orange is this node"}${edge}` : "no ring yet";
}

function members() {
  const rows = Object.entries(state.peers).sort((a, b) => b[1].tokens - a[1].tokens || (a[0] < b[0] ? -1 : 1));
  const most = Math.max(1, ...rows.map(([, peer]) => peer.tokens));
  const sum = rows.reduce((all, [, peer]) => all + peer.tokens, 0) || 1;
  const own = state.node.peer;
  fill($("members"), rows.map(([name, peer]) => {
    const row = make("tr");
    const here = name === own ? "this node" : peer.here === true ? "here"
      : peer.here === false ? `gone: ${peer.cause ?? ""}` : "in receipts";
    const share = make("td");
    const meter = make("meter", undefined, { min: 0, max: most, value: peer.tokens });
    share.append(meter, `${short(peer.tokens)} (${((100 * peer.tokens) / sum).toFixed(0)} %)`);
    const doing = peer.here === true && peer.phase ? peer.phase : here;
    const link = [peer.link, peer.rtt_ms !== null && `${whole(peer.rtt_ms)} ms`].filter(Boolean).join(", ");
    row.append(make("td", last6(name), { title: name }), make("td", doing), share,
      make("td", whole(peer.epochs)), make("td", peer.last_epoch ? whole(peer.last_epoch) : "–"),
      make("td", link || "–"), make("td", peer.send_rate ? `${bytes(peer.send_rate)}/s` : "–"), make("td", peer.loss?.toFixed(3) ?? "–"),
      make("td", (name === own ? state.node.version : peer.version) ?? "–"));
    return row;
  }));
  $("members-note").textContent = `${rows.length} seen since the file began`;
}

function agree() {
  const { epochs } = state.agreement;
  fill($("agree"), epochs.map(([epoch, agrees], at) => {
    const [kind, text] = AGREES[agrees];
    const cell = drawn("rect", { class: kind, x: 2 * at, width: 1.7, height: 4 });
    cell.append(drawn("title", {}, `epoch ${whole(epoch)}: ${text}`));
    return cell;
  }));
  const count = (wanted) => epochs.filter(([, agrees]) => agrees === wanted).length;
  $("agree-note").textContent = `${count(true)} the same, ${count(false)} differing, ${count(null)} unknown`;
}

function news() {
  const list = [...state.notices].reverse();
  fill($("news"), list.map((notice) => {
    const item = make("li", undefined, { "data-kind": notice.kind });
    item.append(make("time", clock(notice.t_ms)), make("span", notice.epoch === null ? "" : `epoch ${notice.epoch}`),
      make("span", notice.text));
    return item;
  }));
  $("news-note").textContent = list.length ? "newest first" : "nothing yet";
}

function show(text) {
  state = JSON.parse(text);
  at = performance.now();
  const { run, node, source } = state;
  $("run").textContent = [run.name, run.id?.slice(0, 8)].filter(Boolean).join(" · ");
  document.title = run.name ? `${run.name}: epoch ${state.head.epoch}` : "intellect";
  $("model").textContent = [
    run.parameters && `${whole(run.parameters)} parameters`, node.peer && `seen by ${last6(node.peer)}`, node.device,
  ].filter(Boolean).join(" · ");
  $("source").textContent = away ? "no connection" : still ? `as of ${new Date(state.now_ms).toLocaleString()}` : source.live ? "live" : source.ended ? "end of the file"
    : source.speed ? `replay, ${short(source.speed)} times as fast` : "reading";
  document.querySelector("main").toggleAttribute("data-watches", Boolean(node.watches));
  $("line").textContent = `intellect-node --bootstrap ${node.entrance ?? "ADDRESS"}${run.id ? ` --run ${run.id.slice(0, 8)}` : ""}`;
  $("needs").textContent = Number.isFinite(run.memory_bytes) ? `It takes ${bytes(run.memory_bytes)} of memory, where a CPU trains, ${
    bytes(run.disk_bytes)} of disk, and at most ${bytes(run.epoch_bytes)} each way in an epoch.` : "";
  const from = node.entrance ? "The address is this node's own, where anybody can dial it."
    : "ADDRESS is in the line that the run's organiser hands out; events do not name it.";
  $("from").textContent = node.version ? `${from} This node runs version ${node.version}.` : from;
  verdict(); tiles(); ring(); members(); agree(); news();
  if (newest() !== asked) load();
}

$("axis").addEventListener("change", () => { loss.view = null; zoom(null, null); charts(); });
$("log").addEventListener("change", charts);
$("copy").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText($("line").textContent); $("copy").textContent = "Copied"; } catch {
    getSelection().selectAllChildren($("line"));
  }
});
setInterval(() => { if (state) verdict(); }, 1000);
const look = () => fetch(still ? "status.json" : "status").then((answer) => answer.text()).then(show).catch(() => {});
look();
if (still) setInterval(look, 10_000);
else follow();

/** Shows pictures as they come. A browser tries a lost connection again, but not one that was refused. */
function follow() {
  const stream = new EventSource("events");
  stream.addEventListener("picture", (event) => { away = false; show(event.data); });
  stream.addEventListener("error", () => {
    away = true;
    $("source").textContent = "no connection";
    if (state) verdict();
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 5_000);
  });
}

// A report: charts of one run, or of several over one another. It stands behind chart.js in one script, and its data
// stand in the page. Every name here may be a stranger's, so text goes in by textContent alone.

const data = JSON.parse(document.getElementById("data").textContent);
const { runs, mean, settings } = data;
const single = runs.length === 1;
const axis = () => $("axis").value;
const AXES = {
  tokens: ["tokens", (x) => short(x)], t_s: ["seconds", (x) => short(x)],
  sent_bytes: ["bytes", (x) => `${short(x)}${/[kMGT]$/.test(short(x)) ? "" : " "}B`], epoch: ["epoch", (x) => short(x)],
};
const spread = (of, error, sign) => of.map((y, at) => (y === null || error[at] === null ? null : y + sign * error[at]));
const band = (of) => ({ y: of.mean, min: spread(of.mean, of.error, -1), max: spread(of.mean, of.error, 1) });
const level = (name, y, width) => ({ name, y: Array(width).fill(y), color: "muted", width: 1.2, dash: [6, 5] });
/** One faint line for each run. */
const each = (column, color) => runs.map((run) => ({
  name: `${run.name}, ${column.replace("_", "-")}`, key: column, of: run, y: run.columns[column], color, width: single ? 1.8 : 0.8, alpha: single ? 1 : 0.5,
}));
/** What guesses cost. Each seed has a source of its own: of several runs these are means, as their curves are. */
const entropies = Object.fromEntries(Object.keys(runs[0].entropies).map((name) => {
  const all = runs.map((run) => run.entropies[name]);
  return [name, all.includes(null) ? null : all.reduce((sum, nats) => sum + nats, 0) / all.length];
}));
const floors = (width, take) => Object.entries(entropies)
  .filter(([, nats]) => nats !== null).map(([name, nats]) => [name, take(nats)])
  .filter(([, nats]) => nats !== null).map(([name, nats]) => level(single ? name : `${name}, mean of ${runs.length}`, nats, width));

/** The series of each chart over the columns x. */
const FIGURES = {
  loss: () => {
    if (single) {
      const { columns: of } = runs[0];
      return [
        { name: "training, mean and range of peers", y: of.train, min: of.train_min, max: of.train_max, color: "blue", width: 1.6 },
        { name: "held-out ± standard error", y: of.held_out, min: spread(of.held_out, of.error, -1), max: spread(of.held_out, of.error, 1), color: "orange", width: 2.6 },
        ...floors(of.epoch.length, (nats) => nats),
      ];
    }
    return [
      ...each("held_out", "orange"),
      { name: `training, mean of ${runs.length} ± standard error`, ...band(mean.train), color: "blue", width: 1.8 },
      { name: `held-out, mean of ${runs.length} ± standard error`, ...band(mean.held_out), color: "orange", width: 2.8 },
      ...floors(mean.epoch.length, (nats) => nats),
    ];
  },
  excess: () => {
    const { floor } = entropies;
    const width = (mean ?? runs[0].columns).epoch.length;
    return [...each("excess", "teal"),
      ...(floor === null ? [] : floors(width, (nats) => (nats > floor ? nats - floor : null)))];
  },
  sync: () => single ? each("sync_s", "blue")
    : [...each("sync_s", "blue"), { name: "mean ± standard error", ...band(mean.sync_s), color: "blue", width: 2 }],
  attempt: () => each("attempt", "amber"),
  members: () => each("members", "teal"),
};
const own = () => mean ?? runs[0].columns;
const charts = Object.fromEntries(Object.keys(FIGURES).map((name) => [name, new Chart($(name), {
  zero: name !== "loss" && name !== "excess",
  x: (x) => AXES[axis()][1](x), y: short, value: (y) => (name === "loss" || name === "excess" ? y.toFixed(4) : short(y)),
  title: (at, x) => `epoch ${own().epoch[at]} · ${AXES[axis()][1](x)} ${axis() === "epoch" ? "" : AXES[axis()][0]}`.trim(),
  onzoom: () => charts[name].draw(),
})]));

/** What was done, at its place on the axis: that of the first commit after it. */
function marks() {
  if (!single) return [];
  const { marks: list, columns } = runs[0];
  return list.map(({ t_s, text }) => {
    const at = columns.t_s.findIndex((t) => t !== null && t >= t_s);
    const x = axis() === "t_s" ? t_s : at < 0 ? null : columns[axis()][at];
    const kind = /^(start|continue|heal|link .* up$)/.test(text) ? "join" : "loss";
    return { x, text: `${short(t_s)} s: ${text}`, kind };
  }).filter((mark) => mark.x !== null);
}

function draw() {
  const x = own()[axis()];
  const steps = marks();
  for (const [name, series] of Object.entries(FIGURES)) {
    const shown = series().filter((one) => one.y.some((y) => y !== null))
      .map((one) => (one.of ? { ...one, x: one.of.columns[axis()] } : one));
    charts[name].log = $("log").checked && (name === "loss" || name === "excess");
    charts[name].set(x, shown, steps);
    const keyed = shown.filter((one) => single || !one.of || !mean || name === "excess" || name === "attempt" || name === "members");
    $(`${name}-key`).replaceChildren(...keyed.slice(0, 8).map((one) => {
      const item = make("li");
      const mark = make("i");
      mark.style.background = `var(--${one.color})`;
      item.append(mark, one.name);
      return item;
    }));
    file(`${name}-csv`, `${name}.csv`, table(shown));
  }
}

/** The rows of a chart: one for each point of each series, so that runs of different epochs fit one file. */
function table(series) {
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const rows = [`series,epoch,${axis() === "epoch" ? "" : `${axis()},`}value,low,high`];
  for (const one of series) {
    const of = one.of?.columns ?? own();
    one.y.forEach((y, at) => {
      if (y === null) return;
      const x = axis() === "epoch" ? "" : `${of[axis()][at] ?? ""},`;
      rows.push(`${quoted(one.name)},${of.epoch[at]},${x}${y},${one.min?.[at] ?? ""},${one.max?.[at] ?? ""}`);
    });
  }
  return rows;
}

function file(id, name, rows) {
  const link = $(id);
  if (link.href) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([`${rows.join("\n")}\n`], { type: "text/csv" }));
  link.download = name;
}

function strip(run) {
  const { weights, epoch } = run.columns;
  const [w, h] = [epoch.length, weights.length];
  const canvas = make("canvas", undefined, { width: Math.max(1, w), height: Math.max(1, h), role: "img", "aria-label": "Peers in rings" });
  canvas.style.height = `${Math.min(400, Math.max(14, (h > 24 ? 4 : 14) * h))}px`;
  const most = weights.reduce((all, row) => row.reduce((a, n) => Math.max(a, n ?? 0), all), 1);
  const style = getComputedStyle($("strips"));
  const pen = canvas.getContext("2d");
  pen.fillStyle = style.getPropertyValue("--grid").trim();
  pen.fillRect(0, 0, w, h);
  pen.fillStyle = style.getPropertyValue("--blue").trim();
  weights.forEach((row, y) => row.forEach((tokens, x) => {
    if (tokens === null) return;
    pen.globalAlpha = 0.35 + (0.65 * tokens) / most;
    pen.fillRect(x, y, 1, 1);
  }));
  return canvas;
}

function strips() {
  const list = runs.slice(0, 16).flatMap((run) => (single ? [strip(run)] : [make("h3", run.name), strip(run)]));
  $("strips").replaceChildren($("strips").firstElementChild, ...list);
  const rows = ["run,epoch,peer,tokens"];
  for (const { name, columns } of runs) {
    columns.weights.forEach((row, peer) => row.forEach((tokens, at) => {
      if (tokens !== null) rows.push(`"${name.replaceAll('"', '""')}",${columns.epoch[at]},${peer},${tokens}`);
    }));
  }
  file("weights-csv", "weights.csv", rows);
}

function texts() {
  const name = settings.find(([key]) => key === "name")?.[1] ?? "";
  $("run").textContent = name;
  $("what").textContent = single ? `${runs[0].columns.epoch.length} epochs` : `${runs.length} runs, ${mean.epoch.length} epochs in common`;
  document.title = `${name}: report`;
  const names = [...new Set(runs.flatMap((run) => run.facts.map(([key]) => key)))];
  const cell = (run, key) => make("td", run.facts.find(([name]) => name === key)?.[1] ?? "–");
  const head = make("tr");
  head.append(make("th", ""), ...runs.map((run) => make("th", run.name)));
  $("facts").replaceChildren(head, ...names.map((key) => {
    const row = make("tr");
    row.append(make("td", key), ...runs.map((run) => cell(run, key)));
    return row;
  }));
  $("settings").replaceChildren(...settings.map(([key, value]) => {
    const row = make("tr");
    row.append(make("td", key), make("td", value));
    return row;
  }));
  const done = runs.flatMap((run) => run.marks.slice(0, 500).map((mark) => {
    const item = make("li");
    item.append(make("span", `${short(mark.t_s)} s`, { class: "muted" }), make("span", single ? "" : run.name), make("span", mark.text));
    return item;
  }));
  $("done").replaceChildren(...(done.length ? done : [make("li", "nothing")]));
}

$("axis").addEventListener("change", () => {
  for (const chart of Object.values(charts)) chart.view = null;
  draw();
});
$("log").addEventListener("change", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", strips);
texts(); strips(); draw();

// A chart on a canvas: lines with bands, or stacked bars. The server has decimated the columns already,
// so that all of them can be drawn each time. Names and values go to the page as text only.

/** The element with this id. */
export const $ = (id) => document.getElementById(id);

/** A new element with this text, which is never read as markup. */
export const make = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

const ROOM = { left: 52, right: 14, top: 8, bottom: 26 };
const HOUR = 3_600_000, DAY = 24 * HOUR;
/** The steps of a clock below a day, in milliseconds. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200].map((s) => 1_000 * s);

/** The least number from this one on that is 1, 2 or 5 times a power of ten. */
const round = (rough) => {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
};

/** Round numbers between two. */
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const step = round((high - low) / Math.max(1, count));
  const out = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) out.push(at);
  return out;
}

/** Powers of ten between two numbers above 0, with their doubles and halves where there would be few. */
function powers(low, high) {
  const out = [], times = high > 100 * low ? [1] : [1, 2, 5];
  for (let at = 10 ** Math.floor(Math.log10(low)); at <= high; at *= 10) out.push(...times.map((n) => n * at));
  return out.filter((y) => y >= low && y <= high);
}

/** Moments between two, in Unix milliseconds: whole seconds, minutes, hours or days where the reader is. */
export function moments(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const step = STEPS.find((ms) => ms >= rough) ?? DAY * round(rough / DAY);
  const zone = (ms) => 60_000 * new Date(ms).getTimezoneOffset();
  const out = [];
  for (let at = Math.ceil((low - zone(low)) / step) * step; at + zone(at) <= high; at += step) out.push(at + zone(at));
  return out.length ? out : [low];
}

/** The time of day of Unix milliseconds, behind the date if it is `dated`: if not told, on another day than today. */
export function clock(ms, dated = new Date(ms).toDateString() !== new Date().toDateString(), parts = { second: "2-digit" }) {
  const date = dated ? { month: "short", day: "numeric" } : {};
  return new Date(ms).toLocaleString([], { ...date, hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...parts });
}

/** The same on an axis over so many milliseconds: seconds on a short one, the date on a long one. */
export const onClock = (ms, span) => (span > 20 * HOUR ? clock(ms, true, {}) : clock(ms, false));

/** A number in few characters: 691 k, 1.4 M, 0.02. */
export function short(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return "–";
  const size = Math.abs(number);
  if (size >= 999.5) {
    const units = ["k", "M", "G", "T"];
    let at = 0, value = number / 1000;
    while (Math.abs(value) >= 999.5 && at < 3) { value /= 1000; at += 1; }
    return `${+value.toPrecision(3)} ${units[at]}`;
  }
  return String(+number.toPrecision(size >= 100 ? 4 : 3));
}

export class Chart {
  /** @param canvas where; @param options {bars, x(value, span) and y(value): texts, ticks(low, high, count), zero, onzoom(from, to)} */
  constructor(canvas, options) {
    this.canvas = canvas;
    // A test compares what is drawn with what the server said.
    canvas.chart = this;
    this.options = options;
    this.x = []; this.series = []; this.marks = [];
    this.log = false; this.cursor = null; this.drag = null; this.view = null;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    canvas.parentElement.append(this.tip);
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => { this.cursor = null; this.drag = null; this.draw(); });
    canvas.addEventListener("pointerdown", (event) => { if (options.onzoom) this.drag = [event.offsetX, event.offsetX]; });
    canvas.addEventListener("pointerup", () => this.drop());
    canvas.addEventListener("dblclick", () => { this.view = null; options.onzoom?.(null, null); });
  }

  /**
   * Shows columns: x, and series {name, color, y, min, max, width, dash, alpha}; one with an x of its own has that.
   * One that is `labelled` has its name beside it, on that side, and the scale does not follow one that stands `aside`.
   */
  set(x, series, marks = []) {
    this.x = x; this.series = series; this.marks = marks;
    this.draw();
  }

  point(event) {
    this.cursor = event.offsetX;
    if (this.drag) this.drag[1] = event.offsetX;
    this.draw();
  }

  drop() {
    const drag = this.drag;
    this.drag = null;
    if (drag && Math.abs(drag[0] - drag[1]) > 8 && this.area) {
      this.view = drag.map((px) => this.back(px)).sort((a, b) => a - b);
      this.options.onzoom(...this.view);
    }
    this.draw();
  }

  back(px) {
    const { left, width, x0, x1 } = this.area;
    return x0 + ((px - left) / width) * (x1 - x0);
  }

  draw() {
    const { canvas } = this;
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (w < 40 || h < 40) return;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    const style = getComputedStyle(canvas);
    this.color = (name) => style.getPropertyValue(`--${name}`).trim();
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    pen.font = `11px ${style.fontFamily}`;
    if (!this.x.length) {
      this.tip.hidden = true;
      pen.fillStyle = this.color("muted");
      pen.textAlign = "center";
      pen.fillText("nothing yet", w / 2, h / 2);
      return;
    }
    const area = { left: ROOM.left, top: ROOM.top, width: w - ROOM.left - ROOM.right, height: h - ROOM.top - ROOM.bottom };
    Object.assign(area, this.options.bars ? this.rangeOfBars() : this.range());
    this.area = area;
    const scale = (y) => (area.log ? Math.log(y) : y);
    const [low, high] = [scale(area.y0), scale(area.y1)];
    this.px = (x) => area.left + ((x - area.x0) / (area.x1 - area.x0 || 1)) * area.width;
    this.py = (y) => area.top + area.height - ((scale(y) - low) / (high - low || 1)) * area.height;
    this.axes(pen, area);
    pen.save();
    pen.beginPath();
    pen.rect(area.left, area.top - 4, area.width + 4, area.height + 8);
    pen.clip();
    if (this.options.bars) this.bars(pen, area);
    else {
      for (const mark of this.marks) this.mark(pen, area, mark);
      for (const one of this.series) this.band(pen, one);
      for (const one of this.series) this.curve(pen, one);
      for (const one of this.series) if (one.labelled) this.label(pen, area, one);
    }
    if (this.drag) {
      pen.fillStyle = this.color("muted");
      pen.globalAlpha = 0.18;
      pen.fillRect(Math.min(...this.drag), area.top, Math.abs(this.drag[0] - this.drag[1]), area.height);
      pen.globalAlpha = 1;
    }
    pen.restore();
    this.hover(pen, area);
  }

  range() {
    const ends = [this.x, ...this.series.map((one) => one.x).filter(Boolean)]
      .flatMap((x) => [x[0], x[x.length - 1]]).filter(Number.isFinite);
    const [x0, x1] = this.view ?? [Math.min(...ends), Math.max(...ends)];
    let y0 = Infinity, y1 = -Infinity;
    // A logarithmic scale has no place for 0.
    const above = this.log && this.options.zero;
    for (const one of this.series) {
      if (one.aside) continue;
      const xs = one.x ?? this.x;
      for (const part of [one.min, one.max, one.y]) {
        part?.forEach((y, at) => {
          if (y === null || y === undefined || (above && y <= 0) || xs[at] < x0 || xs[at] > x1) return;
          y0 = Math.min(y0, y); y1 = Math.max(y1, y);
        });
      }
    }
    if (!(y1 >= y0)) [y0, y1] = [0, 1];
    if (this.options.zero && !above) y0 = 0;
    const log = this.log && y0 > 0;
    if (log) [y0, y1] = [y0 * 0.97, y1 * 1.03];
    else {
      const room = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
      y1 += room;
      if (!this.options.zero) y0 = Math.max(y0 - room, y0 >= 0 ? 0 : -Infinity);
    }
    return { x0, x1: x1 > x0 ? x1 : x0 + 1, y0, y1, log };
  }

  rangeOfBars() {
    const sums = this.x.map((_, at) => this.series.reduce((sum, one) => sum + (one.y?.[at] ?? 0), 0));
    const usual = [...sums].sort((a, b) => a - b)[Math.floor(sums.length * 0.9)];
    // One long epoch does not flatten the others: it is cut, and its height written.
    const y1 = Math.min(Math.max(...sums), 2.2 * usual || Infinity);
    this.cut = sums.map((sum) => (sum > y1 * 1.05 ? sum : null));
    return { x0: this.x[0] - 0.5, x1: this.x[this.x.length - 1] + 0.5, y0: 0, y1: y1 * 1.05 || 1, log: false };
  }

  axes(pen, area) {
    pen.lineWidth = 1;
    pen.strokeStyle = this.color("grid");
    pen.fillStyle = this.color("muted");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const up = area.log && this.options.zero ? powers : ticks;
    for (const y of up(area.y0, area.y1, area.height / (this.options.bars ? 26 : 44))) {
      if (area.log && y <= 0) continue;
      const at = Math.round(this.py(y)) + 0.5;
      pen.beginPath(); pen.moveTo(area.left, at); pen.lineTo(area.left + area.width, at); pen.stroke();
      pen.fillText(this.options.y(y), area.left - 8, at);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    let free = -Infinity;
    const across = this.options.ticks ?? ticks;
    for (const x of across(area.x0, area.x1, area.width / 72)) {
      if (this.options.bars && !Number.isInteger(x)) continue;
      const text = this.options.x(x, area.x1 - area.x0);
      const half = pen.measureText(text).width / 2;
      const at = Math.min(this.px(x), area.left + area.width + ROOM.right - half - 1);
      if (at - half < free) continue;
      pen.fillText(text, at, area.top + area.height + 8);
      free = at + half + 10;
    }
  }

  mark(pen, area, { x, kind }) {
    if (!(x >= area.x0 && x <= area.x1)) return;
    const at = Math.round(this.px(x)) + 0.5;
    pen.strokeStyle = pen.fillStyle = this.color({ join: "good", loss: "bad" }[kind] ?? "amber");
    pen.globalAlpha = 0.7;
    pen.setLineDash([2, 3]);
    pen.beginPath(); pen.moveTo(at, area.top); pen.lineTo(at, area.top + area.height); pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
    pen.beginPath(); pen.arc(at, area.top + area.height, 3, 0, 7); pen.fill();
  }

  band(pen, one) {
    if (!one.min || !one.max) return;
    const xs = one.x ?? this.x;
    const known = xs.map((_, at) => at).filter((at) => one.min[at] !== null && one.max[at] !== null);
    if (!known.length) return;
    pen.fillStyle = this.color(one.color);
    pen.globalAlpha = 0.16;
    pen.beginPath();
    for (const at of known) pen.lineTo(this.px(xs[at]), this.py(one.max[at]));
    for (const at of known.reverse()) pen.lineTo(this.px(xs[at]), this.py(one.min[at]));
    pen.fill();
    pen.globalAlpha = 1;
  }

  curve(pen, one) {
    if (!one.y) return;
    const xs = one.x ?? this.x;
    pen.globalAlpha = one.alpha ?? 1;
    pen.strokeStyle = pen.fillStyle = this.color(one.color);
    pen.lineWidth = one.width ?? 1.6;
    pen.lineJoin = "round";
    pen.setLineDash(one.dash ?? []);
    pen.beginPath();
    one.y.forEach((y, at) => { if (y !== null) pen.lineTo(this.px(xs[at]), this.py(y)); });
    pen.stroke();
    pen.setLineDash([]);
    if (!one.dash && xs.length <= 60) {
      one.y.forEach((y, at) => {
        if (y === null) return;
        pen.beginPath(); pen.arc(this.px(xs[at]), this.py(y), 2.2, 0, 7); pen.fill();
      });
    }
    pen.globalAlpha = 1;
  }

  /** Writes the name of a level at its right end: "above" or "below" the line. */
  label(pen, area, one) {
    const y = one.y?.findLast((y) => y !== null);
    if (y === null || y === undefined) return;
    pen.fillStyle = this.color("muted");
    const below = one.labelled === "below";
    pen.textAlign = "right";
    pen.textBaseline = below ? "top" : "bottom";
    pen.fillText(one.name, area.left + area.width - 4, this.py(y) + (below ? 3 : -2));
  }

  bars(pen, area) {
    const wide = Math.max(1, Math.min(36, (area.width / this.x.length) * 0.78));
    this.x.forEach((x, at) => {
      let from = 0;
      for (const one of this.series) {
        const y = one.y?.[at] ?? 0;
        if (y <= 0) continue;
        pen.fillStyle = this.color(one.color);
        const [top, foot] = [this.py(from + y), this.py(from)];
        pen.fillRect(this.px(x) - wide / 2, top, wide, Math.max(0.75, foot - top - (from ? 1 : 0)));
        from += y;
      }
      if (this.cut[at] === null) return;
      pen.fillStyle = this.color("card");
      pen.fillRect(this.px(x) - wide / 2 - 1, area.top + 18, wide + 2, 3);
      pen.fillStyle = this.color("text");
      pen.textAlign = "left";
      pen.textBaseline = "top";
      pen.fillText(this.options.y(this.cut[at]), this.px(x) + wide / 2 + 4, area.top);
    });
  }

  hover(pen, area) {
    const inside = this.cursor !== null && this.cursor >= area.left && this.cursor <= area.left + area.width;
    this.tip.hidden = !inside;
    if (!inside) return;
    const wanted = this.back(this.cursor);
    let at = 0;
    this.x.forEach((x, i) => { if (Math.abs(x - wanted) < Math.abs(this.x[at] - wanted)) at = i; });
    const line = Math.round(this.px(this.x[at])) + 0.5;
    pen.strokeStyle = this.color("muted");
    pen.globalAlpha = 0.5;
    pen.beginPath(); pen.moveTo(line, area.top); pen.lineTo(line, area.top + area.height); pen.stroke();
    pen.globalAlpha = 1;
    const values = this.series.filter((one) => !one.x && one.y && one.y[at] !== null && one.y[at] !== undefined)
      .map((one) => `${one.name}  ${this.options.value?.(one.y[at]) ?? short(one.y[at])}`);
    const near = this.marks.filter((mark) => Math.abs(this.px(mark.x) - this.cursor) < 5).slice(0, 4);
    this.tip.textContent = [this.options.title(at, this.x[at]), ...values, ...near.map((mark) => mark.text)].join("\n");
    const left = line > area.left + area.width / 2 ? line - this.tip.offsetWidth - 10 : line + 10;
    this.tip.style.left = `${Math.max(0, left)}px`;
  }
}

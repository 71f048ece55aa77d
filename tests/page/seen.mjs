// What runs inside the page: it reads what is shown. Each function is sent there as text, so it uses nothing from outside.

/** The columns and the ink of each chart. */
export function drawn() {
  const charts = {};
  for (const canvas of document.querySelectorAll("canvas")) {
    if (!canvas.chart) continue;
    const { x, series } = canvas.chart;
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let ink = 0;
    for (let at = 3; at < pixels.length; at += 4) ink += pixels[at] > 0;
    charts[canvas.id] = { x, ink, series: series.map(({ name, y, min, max }) => ({ name, y: y ?? null, min: min ?? null, max: max ?? null })) };
  }
  return charts;
}

/** The width of the page, of the window, and what is too wide. */
export function widths() {
  const { scrollWidth: scroll, clientWidth: client } = document.documentElement;
  const outside = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > client + 1);
  return { scroll, client, widest: outside.slice(0, 3).map((one) => one.tagName + (one.id && `#${one.id}`)).join(", ") };
}

/** The contrast of each text with its ground, by the formula of WCAG 2, once for each pair of colours. */
export function contrasts() {
  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const over = (top, ground) => top.rgb.map((c, at) => c * top.a + ground[at] * (1 - top.a));
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    const above = [];
    for (let at = node; at; at = at.parentElement) above.push(parse(getComputedStyle(at).backgroundColor));
    return above.reverse().reduce((rgb, layer) => over(layer, rgb), [255, 255, 255]);
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const pairs = new Map();
  const note = (color, node, text) => {
    const behind = ground(node);
    pairs.set(`${color} ${behind}`, { ratio: +ratio(over(parse(color), behind), behind).toFixed(2), color, behind: behind.map(Math.round), text });
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const { parentElement: node, textContent } = walk.currentNode;
    if (!textContent.trim() || node.closest("script, style, title") || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    note(node.closest("svg") ? style.fill : style.color, node, textContent.trim().slice(0, 40));
  }
  // Text on a canvas has the colours of these names.
  const probe = document.createElement("i");
  for (const canvas of document.querySelectorAll(".plot canvas")) {
    canvas.parentElement.append(probe);
    for (const name of ["muted", "text"]) {
      probe.style.color = `var(--${name})`;
      note(getComputedStyle(probe).color, canvas.parentElement, `${canvas.id}: --${name}`);
    }
  }
  probe.remove();
  return [...pairs.values()];
}

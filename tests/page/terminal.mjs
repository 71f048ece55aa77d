// A terminal as a picture: from what `tmux capture-pane -e` prints to an SVG that looks the same with any font.
//
// Text stands in runs of one style, stretched to whole cells. Lines, blocks and the dots of a chart are drawn, because
// fonts differ most in these.

const CELL = 8.4, ROW = 18, MARGIN = 16;
const INK = "#d3d7de", PAPER = "#14171c";
/** The colours 0 to 7 of a terminal, and 8 to 15. */
const COLOURS = [
  "#45505e", "#f2777a", "#8fcf7d", "#e9c46a", "#6fb1fc", "#d49bea", "#5fd0d6", "#c3c9d2",
  "#7f8896", "#ff9a9c", "#abe39b", "#ffdf8e", "#94c7ff", "#e6b8f7", "#8be6eb", "#ffffff",
];
/** Arms of the lines that are drawn: up, right, down, left. */
const LINES = {
  "─": "rl", "│": "ud", "┌": "rd", "┐": "dl", "└": "ur", "┘": "ul", "├": "urd", "┤": "udl", "┬": "rdl", "┴": "url", "┼": "urdl",
};
/** The dots of a braille character, by the bit that shows each: column and row of four. */
const DOTS = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [0, 3], [1, 3]];

const near = (number) => String(Math.round(number * 10) / 10);
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** Follows the codes of `ESC [ … m`. */
function styled(style, codes) {
  const rest = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
  while (rest.length > 0) {
    const code = rest.shift();
    if (code === 0) style = { ink: INK, bold: false };
    else if (code === 1) style = { ...style, bold: true };
    else if (code === 22) style = { ...style, bold: false };
    else if (code === 39) style = { ...style, ink: INK };
    else if (code >= 30 && code <= 37) style = { ...style, ink: COLOURS[code - 30] };
    else if (code >= 90 && code <= 97) style = { ...style, ink: COLOURS[code - 82] };
    else if (code === 38 && rest.shift() === 5) style = { ...style, ink: COLOURS[rest.shift()] ?? INK };
  }
  return style;
}

/** The characters of the screen, each with its style and place. */
function cells(text) {
  const all = [];
  text.split("\n").forEach((line, row) => {
    let style = { ink: INK, bold: false }, column = 0;
    for (const [, codes, letter] of line.matchAll(/\x1b\[([\d;:]*)m|(.)/gu)) {
      if (codes !== undefined) style = styled(style, codes);
      else if (letter !== "\x1b") all.push({ letter, row, column: column++, ...style });
    }
  });
  return all;
}

/** What of a cell is drawn and not written, as a path in a colour: a stroke, a fill, or dots. */
function drawn({ letter, row, column }) {
  const [left, top] = [MARGIN + column * CELL, MARGIN + row * ROW];
  const [x, y] = [left + CELL / 2, top + ROW / 2];
  if (letter in LINES) {
    const to = { u: `V${near(top)}`, r: `H${near(left + CELL)}`, d: `V${near(top + ROW)}`, l: `H${near(left)}` };
    return { kind: "line", path: [...LINES[letter]].map((arm) => `M${near(x)} ${near(y)}${to[arm]}`).join("") };
  }
  const code = letter.codePointAt(0);
  if (code >= 0x2588 && code <= 0x258f) {
    const wide = CELL * (0x2590 - code) / 8;
    return { kind: "block", path: `M${near(left)} ${near(top + 3)}h${near(wide + 0.2)}v${near(ROW - 6)}h-${near(wide + 0.2)}z` };
  }
  if (code > 0x2800 && code <= 0x28ff) {
    const shown = DOTS.filter((_, bit) => (code - 0x2800) >> bit & 1);
    const dot = ([across, down]) => `M${near(left + CELL * (across + 0.5) / 2)} ${near(top + ROW * (down + 0.5) / 4)}h0`;
    return { kind: "dots", path: shown.map(dot).join("") };
  }
  return null;
}

/** Neighbours of one style as one run. It ends where two spaces follow, since a picture has at most one between words. */
function runs(written) {
  const all = [];
  for (const cell of written.filter(({ letter }) => letter !== " ")) {
    const last = all.at(-1), gap = last && cell.column - last.column - last.letters.length;
    const follows = last && last.row === cell.row && last.ink === cell.ink && last.bold === cell.bold && (gap === 0 || gap === 1);
    if (follows) last.letters.push(...(gap === 1 ? [" "] : []), cell.letter);
    else all.push({ ...cell, letters: [cell.letter] });
  }
  return all;
}

const ATTRIBUTES = {
  line: (ink) => `fill="none" stroke="${ink}" stroke-width="1"`,
  block: (ink) => `fill="${ink}"`,
  dots: (ink) => `fill="none" stroke="${ink}" stroke-width="2.6" stroke-linecap="round"`,
};

/** The picture of a screen with so many columns and rows. */
export function picture(text, columns, rows, title) {
  const paths = new Map(), written = [];
  for (const cell of cells(text)) {
    const shape = drawn(cell);
    if (!shape) { written.push(cell); continue; }
    const key = ATTRIBUTES[shape.kind](cell.ink);
    paths.set(key, (paths.get(key) ?? "") + shape.path);
  }
  const [width, height] = [2 * MARGIN + columns * CELL, 2 * MARGIN + rows * ROW].map(Math.ceil);
  const line = ({ letters, row, column, ink, bold }) => {
    const place = `x="${near(MARGIN + column * CELL)}" y="${near(MARGIN + row * ROW + 13.5)}"`;
    const style = `${ink === INK ? "" : ` fill="${ink}"`}${bold ? ' font-weight="bold"' : ""}`;
    return `<text ${place} textLength="${near(letters.length * CELL)}"${style}>${escaped(letters.join(""))}</text>`;
  };
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="${width}" height="${height}" rx="8" fill="${PAPER}"/>`,
    ...[...paths].map(([attributes, path]) => `<path ${attributes} d="${path}"/>`),
    `<g fill="${INK}" font-size="14" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace">`,
    ...runs(written).map(line),
    "</g>",
    "</svg>",
    "",
  ].join("\n");
}

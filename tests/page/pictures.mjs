// The pictures of the README, made anew: the page and the terminal of one simulation of four nodes.
//
//   node tests/page/pictures.mjs [target/release/intellect-node]
//
// It needs what run.mjs needs, and tmux, whose terminal has the screen. The pictures differ with each run.

import { execFileSync } from "node:child_process";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { join, resolve } from "node:path";

import { picture } from "./terminal.mjs";

const program = resolve(process.argv[2] ?? "target/release/intellect-node");
const { chromium } = createRequire(resolve("target/page/none.js"))("playwright-core");
const EPOCHS = 120, SHOWN = 100, COLUMNS = 108, ROWS = 32, BYTES_MAX = 300_000;
const folder = resolve(import.meta.dirname, "../../docs/pictures");

/** A port that was free a moment ago. */
const port = await new Promise((done) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => done(port));
  });
});
const url = `http://127.0.0.1:${port}/`;

// A server of its own, so that nobody's tmux is touched.
const server = `intellect-pictures-${process.pid}`;
const tmux = (...words) => execFileSync("tmux", ["-u", "-L", server, "-f", "/dev/null", ...words], { encoding: "utf8" });
const line = [program, "sim", "--peers", "4", "--epochs", String(EPOCHS), "--page", `127.0.0.1:${port}`, "--tui"];
tmux("new-session", "-d", "-s", "sim", "-x", String(COLUMNS), "-y", String(ROWS), ...line);

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const page = await browser.newPage({ viewport: { width: 1180, height: 900 }, deviceScaleFactor: 1.5, colorScheme: "light" });
  for (let tries = 0; ; tries += 1) {
    try { await page.goto(url); break; } catch (error) { if (tries > 100) throw error; }
    await page.waitForTimeout(200);
  }
  const reached = () => page.evaluate(async () => (await (await fetch("/status")).json()).head?.epoch ?? 0);
  while (await reached() < SHOWN) await page.waitForTimeout(200);
  const screen = tmux("capture-pane", "-p", "-e", "-t", "sim");
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, "page.png") });
  writeFileSync(join(folder, "terminal.svg"), picture(screen, COLUMNS, ROWS, "intellect-node in a terminal"));
} finally {
  await browser.close();
  tmux("kill-server");
}
const sizes = ["page.png", "terminal.svg"].map((name) => [name, statSync(join(folder, name)).size]);
for (const [name, bytes] of sizes) console.log(`docs/pictures/${name}: ${bytes} bytes`);
if (sizes.reduce((sum, [, bytes]) => sum + bytes, 0) > BYTES_MAX) throw new Error(`more than ${BYTES_MAX} bytes`);

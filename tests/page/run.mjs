// The page and the report in a browser: what they show, what they load, and what they cost.
//
//   node tests/page/run.mjs [target/release/intellect-node]
//
// It needs Chromium and playwright-core; .ci/run says how they are had. Every check is a line, and a wrong one ends it with 1.

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { isDeepStrictEqual } from "node:util";

import { EPOCHS, EVIL, PARALLEL_BYTES, PEERS, hostile, lossOf, reports, run, tokensOf, watched } from "./made.mjs";
import { contrasts, drawn, widths } from "./seen.mjs";

const program = resolve(process.argv[2] ?? "target/release/intellect-node");
const { chromium } = createRequire(resolve("target/page/none.js"))("playwright-core");
const FIRST_PAINT_MS = 1_000, TAB_MB = 150, CONTRAST = 4.5;

mkdirSync("target/page", { recursive: true });
const folder = mkdtempSync(resolve("target/page/made-"));
const began = Date.now();
let wrong = 0;
const check = (what, right, seen = "") => {
  if (!right) wrong += 1;
  console.log(`${right ? "right" : "WRONG"}  ${what}${seen === "" ? "" : `: ${seen}`}`);
};
const equal = (what, seen, wanted) => {
  const same = isDeepStrictEqual(seen, wanted);
  check(what, same, same ? "" : `${JSON.stringify(seen)?.slice(0, 300)} is not ${JSON.stringify(wanted)?.slice(0, 300)}`);
};

/** Numbers that went through a parser and back may differ in the last digit. */
const near = (a, b) => (a === null || b === null ? a === b : Math.abs(a - b) <= 1e-12 * Math.abs(b));

/** Plays files to their end on a page; resolves once everything has been read. */
async function played(files) {
  const child = spawn(program, ["replay", ...files, "--speed", "0", "--page", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  for await (const part of child.stdout) {
    text += part;
    if (text.includes("the page stays")) break;
  }
  const url = /page: (http:\S+)/.exec(text)?.[1];
  if (!url) throw new Error(`replay shows no page: ${text}`);
  return { url, end: () => child.kill("SIGINT"), pid: child.pid };
}

/** A page that remembers what it asked for and what went wrong. */
async function opened(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 720 }, ...options });
  const page = await context.newPage();
  const notes = { asked: [], wrong: [] };
  page.on("request", (request) => notes.asked.push(request.url()));
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) notes.wrong.push(message.text()); });
  page.on("pageerror", (error) => notes.wrong.push(String(error)));
  page.on("dialog", (dialog) => { notes.wrong.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  return { page, context, notes };
}

const quiet = ({ asked, wrong }, origin, what) => {
  const off = asked.filter((url) => !url.startsWith(origin) && !url.startsWith("data:,"));
  equal(`${what}: no request off its origin`, off, []);
  equal(`${what}: no error in the console`, wrong, []);
};

async function looks(page, what) {
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.waitForTimeout(60);
    const poor = (await page.evaluate(contrasts)).filter(({ ratio }) => ratio < CONTRAST);
    equal(`${what}: contrast of ${CONTRAST} where it is ${scheme}`, poor, []);
  }
  await page.setViewportSize({ width: 360, height: 740 });
  await page.waitForTimeout(150);
  const { scroll, client, widest } = await page.evaluate(widths);
  check(`${what}: no scroll sideways at 360 px`, scroll <= client, `${scroll} of ${client}${scroll > client ? `, ${widest}` : ""}`);
  await page.setViewportSize({ width: 1280, height: 720 });
}

/** Megabytes of a process that are its own: its part of what it shares is counted in part. */
const megabytes = (pid) => Number(/^Pss: +(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))[1]) / 1_024;

async function longRun(browser) {
  const made = await run(folder);
  const shown = await played(made.files);
  const paints = [];
  // The machine may be busy with something else: the best of three is what the page itself takes.
  for (let at = 0; at < 3; at += 1) {
    const { page, context } = await opened(browser);
    await page.goto(shown.url);
    await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
    await context.close();
  }
  check(`first paint within ${FIRST_PAINT_MS} ms`, Math.min(...paints) <= FIRST_PAINT_MS, paints.map(Math.round).join(", "));

  const { page, context, notes } = await opened(browser);
  await page.goto(shown.url);
  await page.waitForFunction((epochs) => document.getElementById("loss").chart.x.length > 100
    && document.querySelectorAll("#members tr").length > 100 && document.getElementById("facts").textContent.includes(epochs), "10\u202f000");
  const [status, history] = await page.evaluate(async () => [
    await (await fetch("/status")).json(), await (await fetch("/history?points=1500")).json(),
  ]);

  equal("/status: head", [status.head.epoch, status.head.tokens, status.ring.length], [EPOCHS, tokensOf(EPOCHS), PEERS]);
  check("/status: loss", near(status.head.loss, lossOf(EPOCHS)), status.head.loss);
  equal("/history: the last row", [history.epoch.at(-1), history.tokens.at(-1)], [EPOCHS, tokensOf(EPOCHS)]);
  const losses = Array.from({ length: EPOCHS }, (_, at) => Math.fround(lossOf(at + 1)));
  const least = (numbers) => numbers.reduce((a, b) => Math.min(a, b));
  check("/history: keeps the extremes", least(history.columns.loss_min) === least(losses), least(history.columns.loss_min));

  const charts = await page.evaluate(drawn);
  equal("chart of the loss: its x is the tokens of /history", charts.loss.x, history.tokens);
  const [training, heldOut, ...floors] = charts.loss.series;
  for (const [key, one] of [["loss", training], ["held_out", heldOut], ["floor", floors[0]]]) {
    equal(`chart of the loss: ${key}`, one.y, history.columns[key]);
  }
  equal("chart of the loss: least of loss", training.min, history.columns.loss_min);
  const errors = history.columns.held_out_error;
  const above = heldOut.y.map((y, at) => (y === null ? null : y + errors[at]));
  equal("chart of the loss: a standard error above held_out", heldOut.max, above);
  equal("chart of the loss: the levels", floors.map(({ name, y }) => [name, y.at(-1)]),
    [["entropy of the source", Math.fround(1.7)], ["best guess from the last token", 2.2], ["best guess from no token", 2.6]]);
  equal("chart of the traffic: bytes sent", charts.traffic.series[0].y, history.columns.sent_bytes);
  const parallel = charts.traffic.series[2];
  equal("chart of the traffic: bytes of data-parallel training", [parallel.y, parallel.y.at(-1)], [history.columns.parallel_bytes, Math.fround(PARALLEL_BYTES)]);
  equal("chart of the times: 50 epochs", charts.times.x, Array.from({ length: 50 }, (_, at) => EPOCHS - 49 + at));
  equal("chart of the times: the ring", [...new Set(charts.times.series.at(-1).y)], [2]);
  check("each chart has ink", Object.values(charts).every(({ ink }) => ink > 200), Object.values(charts).map(({ ink }) => ink).join(", "));

  // What a person reads with the pointer over the middle of the loss.
  const box = await page.locator("#loss").boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  const tip = await page.locator(".loss .tip").textContent();
  const at = history.epoch.indexOf(Number(/epoch (\d+)/.exec(tip)?.[1]));
  check("the value under the pointer is that of /history", at > 0 && tip.includes(history.columns.loss[at].toFixed(4)), tip.split("\n").join(" | "));

  const first = ["#verdict", ".loss", ".progress", ".times", ".join"];
  const feet = await page.evaluate((all) => all.map((one) => Math.ceil(document.querySelector(one).getBoundingClientRect().bottom + scrollY)), first);
  check("the first five are on one screen of 1280 × 720", feet.every((foot) => foot <= 720), feet.join(", "));
  const text = (selector) => page.locator(selector).allTextContents();
  equal("verdict", (await text("#sentence"))[0], status.verdict.sentence);
  equal("what a machine that joins needs", await text("#needs"),
    ["It takes 42 MB of memory, where a CPU trains, 12 MB of disk, and at most 190 kB each way in an epoch."]);
  const times = (50 * PARALLEL_BYTES) / Array.from({ length: 50 }, (_, at) => 1_000 + EPOCHS - at).reduce((a, b) => a + b);
  check("how often as much data-parallel training sends", (await text("#saved"))[0].includes(`, ${+times.toPrecision(4)} times as much`), (await text("#saved"))[0]);
  equal("name of the run", (await text("#run"))[0], `${status.run.name} · ${status.run.id.slice(0, 8)}`);
  const rows = await page.$$eval("#members tr", (rows) => rows.map((row) => [row.cells[0].title, row.cells[3].textContent.replace(/\D/g, "")]));
  equal("peers and their epochs", Object.fromEntries(rows), Object.fromEntries(Object.entries(status.peers).map(([name, peer]) => [name, String(peer.epochs)])));
  equal("the version of each peer", await page.$$eval("#members tr", (rows) => [...new Set(rows.map((row) => row.cells[8].textContent))]), ["0.1.0"]);
  const short = (peer) => peer.slice(-6);
  const seats = await page.$$eval("#ring .seat title", (all) => all.map((one) => one.textContent));
  equal("ways of the ring: this node's own, another's, and back to this node", [seats[0], seats[1], seats.at(-1)], [
    `${made.names[0]}: 512 tokens; to ${short(made.names[1])} 2.5 MB/s, 7 ms`, `${made.names[1]}: 512 tokens; to ${short(made.names[2])} 1.25 MB/s`,
    `${made.names.at(-1)}: 512 tokens; to ${short(made.names[0])} 1.25 MB/s, 7 ms`,
  ]);
  equal("seats of the ring", await page.$$eval("#ring .seat title", (all) => all.map((one) => one.textContent.split(":")[0])), status.ring.map(({ peer }) => peer));
  const strip = status.agreement.epochs;
  equal("strip of states: all but the last are those from which a ring began", strip, Array.from({ length: 50 }, (_, at) => [EPOCHS - 49 + at, at < 49 || null]));
  equal("strip of states: as drawn", await page.$$eval("#agree rect", (all) => all.map((one) => one.getAttribute("class"))),
    strip.map(([, agrees]) => (agrees ? "same" : "unknown")));
  equal("events, newest first", (await text("#news li span:last-child")), status.notices.map((notice) => notice.text).reverse());
  check("progress has epochs and tokens", /10\u202f000/.test((await text("#progress"))[0]) && (await text("#progress"))[0].includes("1.02 G"));
  check("progress has the share of the tokens at which the run ends", (await text("#progress"))[0].includes("of 2.05 G (50 %)"));
  await looks(page, "page");
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const tabs = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => megabytes(id));
  check(`the tab has at most ${TAB_MB} MB`, Math.max(...tabs) <= TAB_MB, `${Math.round(Math.max(...tabs))} MB; the program ${Math.round(megabytes(shown.pid))} MB`);
  quiet(notes, shown.url, "page");
  await context.close();
  await metrics(shown.url);
  shown.end();
}

/** Each metric of the table has a sample, and Prometheus's own checker is content: where it is installed, and always in CI. */
async function metrics(url) {
  const input = await (await fetch(`${url}metrics`)).text();
  const table = readFileSync("node/view/src/metrics.rs", "utf8").matchAll(/^ {4}\("(\w+)", "/gm);
  const names = Array.from(table, ([, name]) => name);
  check("/metrics: the table is read", names.length > 20, names.length);
  equal("/metrics: no metric of the table lacks a sample", names.filter((name) => !input.includes(`\nintellect_${name}{`)), []);
  const done = spawnSync("promtool", ["check", "metrics"], { input, encoding: "utf8" });
  if (done.error && process.env.CI) check("promtool is there (Debian's package prometheus)", false, done.error.message);
  else if (done.error) console.log("skipped: no promtool (Debian's package prometheus), so /metrics was not checked");
  else check("promtool finds nothing in /metrics", done.status === 0 && done.stderr === "", `${done.stdout}${done.stderr}`.trim());
}

async function hostileRun(browser) {
  const shown = await played([hostile(folder)]);
  const { page, context, notes } = await opened(browser);
  await page.goto(shown.url);
  await page.waitForFunction(() => document.querySelectorAll("#news li").length > 10);
  await page.waitForTimeout(300);
  const found = await page.evaluate(() => ({
    ran: window.ran ?? null, tags: document.querySelectorAll("img, script:not([src]), iframe, object, #news b, main svg svg").length,
    turned: /[\u200b-\u200f\u202a-\u202e\u2066-\u2069]/.test(document.documentElement.textContent),
    longest: Math.max(...[...document.querySelectorAll("main *")].filter((one) => !one.children.length).map((one) => one.textContent.length)),
    markup: document.querySelector("main").textContent.includes("<img src=x onerror="),
  }));
  equal("hostile file: nothing runs, and no tag comes in", [found.ran, found.tags], [null, 0]);
  check("hostile file: markup is shown as text, without marks of direction", found.markup && !found.turned);
  check("hostile file: a name of 64 kB is cut", found.longest < 1_200, found.longest);
  await looks(page, "hostile file");
  quiet(notes, shown.url, "hostile file");
  await context.close();
  shown.end();
}

async function watchedRun(browser) {
  const shown = await played([watched(folder)]);
  const { page, context, notes } = await opened(browser);
  await page.goto(shown.url);
  await page.waitForFunction(() => document.querySelector("main[data-watches]") && document.querySelector("#loss-key li"));
  const titles = await page.$$eval("h2", (all) => all.filter((one) => one.getClientRects().length).map((one) => one.textContent));
  equal("watcher: what nobody measured is left out", titles, ["Loss", "Progress", "Join this run", "The last ring", "Peers", "States of the last 50 epochs", "Events"]);
  // What a member says of a round trip is from where it is.
  equal("watcher: the rate of each way", await page.locator("#ring .way").allTextContents(), ["1.25 MB/s", "1.25 MB/s"]);
  equal("watcher: the loss is named", await page.locator("#loss-key li").allTextContents(), ["training, mean of what members say"]);
  await looks(page, "watcher");
  quiet(notes, shown.url, "watcher");
  await context.close();
  shown.end();
}

async function onDisk(browser, what, count, name) {
  const folders = reports(join(folder, what), count, 200, 24, name);
  const html = join(folder, `${what}.html`);
  const done = spawnSync(program, ["report", ...folders, "--html", html], { encoding: "utf8" });
  if (done.status !== 0) return check(`${what}: the report is written`, false, done.stderr);
  const { page, context, notes } = await opened(browser);
  const url = pathToFileURL(html).href;
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById("loss").chart?.x.length > 0);
  const [charts, data] = [await page.evaluate(drawn), JSON.parse(readFileSync(join(folders[0], "report.json"), "utf8"))];
  const held = charts.loss.series.find((one) => one.name.startsWith(count === 1 ? "held-out" : "seed-1, held-out"));
  check(`${what}: the first run's held-out loss`, held.y.length === data.table.length && data.table.every((row, at) => near(held.y[at], row.held_out_loss)));
  const floor = charts.loss.series.find((one) => one.name.startsWith("floor"));
  check(`${what}: the floor is that of all seeds`, near(floor.y[0], 1.7 + (count - 1) / 20), floor.y[0]);
  check(`${what}: each chart has ink`, Object.values(charts).every(({ ink }) => ink > 200), Object.values(charts).map(({ ink }) => ink).join(", "));
  const link = page.waitForEvent("download");
  await page.click("#loss-csv");
  const saved = readFileSync(await (await link).path(), "utf8");
  check(`${what}: CSV has a row for each point`, saved.split("\n").length > 200 && saved.startsWith("series,epoch,tokens,value"), `${saved.split("\n").length} rows`);
  for (const axis of ["t_s", "sent_bytes", "epoch"]) await page.selectOption("#axis", axis);
  await page.check("#log");
  const found = await page.evaluate(() => [window.ran ?? null, document.querySelectorAll("img, iframe, object, section b").length]);
  equal(`${what}: nothing runs`, found, [null, 0]);
  await looks(page, what);
  // A click on CSV asks for what the page itself has made.
  notes.asked = notes.asked.filter((asked) => !asked.startsWith("blob:"));
  quiet(notes, url, what);
  await context.close();
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  await longRun(browser);
  await hostileRun(browser);
  await watchedRun(browser);
  await onDisk(browser, "report of one run", 1, "sim");
  await onDisk(browser, "report of three runs", 3, EVIL[0]);
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
console.log(`${wrong === 0 ? "all is right" : `${wrong} wrong`}, in ${Math.round((Date.now() - began) / 1_000)} s`);
process.exitCode = wrong === 0 ? 0 : 1;

// Files that the test of the page looks at, made here: a long run of many peers, a hostile one, and reports.

import { createWriteStream, mkdirSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { join } from "node:path";

export const PEERS = 200, EPOCHS = 10_000;
const DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const BEGAN = 1_700_000_000_000;

/** An id as a peer has one: the end tells peers apart. */
const id = (n) => {
  let end = "";
  for (let i = 0, left = n * 7_919 + 104_729; i < 44; i += 1, left = (left * 48_271) % 2_147_483_647) end += DIGITS[left % 58];
  return `12D3KooW${end}`;
};
const hex = (n) => n.toString(16).padStart(8, "0").repeat(8);
/** The loss of an epoch: a falling curve with noise that follows from the number. */
export const lossOf = (epoch) => 1.8 + 2 / Math.sqrt(epoch) + ((epoch * 2_654_435_761) % 1_000) / 20_000;
export const tokensOf = (epoch) => epoch * PEERS * 512;
const NEEDS = { step_tokens: 256, memory_bytes: 42_000_000, disk_bytes: 12_000_000, epoch_bytes: 190_000 };
/** What data-parallel training sends in an epoch of two steps of 94,528 parameters. */
export const PARALLEL_BYTES = (2 * 2 * (PEERS - 1) * 4 * 94_528) / PEERS;

/** Writes the events of the first of many peers, and what a simulation measured; returns what they must show. */
export async function run(folder) {
  const names = Array.from({ length: PEERS }, (_, n) => id(n));
  const quoted = names.map((name) => `"${name}"`);
  // Who is in the ring changes: all, but for one that is left out, in an order that turns.
  const rings = Array.from({ length: PEERS }, (_, turn) => [...quoted.slice(turn), ...quoted.slice(0, turn)].join(","));
  const weights = Array(PEERS).fill(512).join(",");
  const end = (epoch, t) => `"t_ms":${t},"peer":"${names[0]}","run":"${hex(7)}","epoch":${epoch}}\n`;
  const [events, measured] = [join(folder, "events.jsonl"), join(folder, "sim.jsonl")];
  const file = createWriteStream(events);
  const write = async (text) => { if (!file.write(text)) await once(file, "drain"); };
  const start = { event: "started", version: "0.1.0", device: "cpu", micro_batch: 8, parameters: 94_528, t_ms: BEGAN, peer: names[0], run: hex(7) };
  await write(`${JSON.stringify(start)}\n`);
  await write(`${JSON.stringify({ event: "manifest", name: "long-run", organiser: hex(1), from: null, parameters: 94_528, stop_tokens: 2 * tokensOf(EPOCHS), ...NEEDS, t_ms: BEGAN, peer: names[0], run: hex(7) })}\n`);
  for (const who of names.slice(1)) {
    await write(`${JSON.stringify({ event: "peer-found", who, direct: true, t_ms: BEGAN + 1, peer: names[0], run: hex(7) })}\n`);
  }
  const said = { t_ms: BEGAN + 2, peer: names[0], run: hex(7) };
  await write(`${JSON.stringify({ event: "reachability", state: "open", addresses: ["/ip4/203.0.113.7/tcp/4001"], ...said })}\n`);
  await write(`${JSON.stringify({ event: "aborted", attempt: 1, phase: "reduce", reason: "made up", epoch: 1, ...said })}\n`);
  for (let epoch = 1; epoch <= EPOCHS; epoch += 1) {
    const t = BEGAN + epoch * 10_000;
    const members = rings[epoch % PEERS];
    // The file is half as long if only the last rosters are whole; nothing shows an earlier one.
    const roster = epoch > EPOCHS - 100 ? members : quoted[0];
    const loss = lossOf(epoch);
    await write(`{"event":"ready","tokens":512,"loss":${loss},"norm":1,${end(epoch, t - 3_000)}`
      + `{"event":"roster","attempt":1,"members":[${roster}],"adopt":null,"kept_chunks":0,${end(epoch, t - 2_000)}`
      + `{"event":"committed","attempt":1,"members":[${members}],"weights":[${weights}],"state":"${hex(epoch)}","update":"${hex(1)}",`
      + `"tokens":${tokensOf(epoch)},"loss":${loss},"sync_ms":3000,"sent_bytes":${1_000 + epoch},"received_bytes":900,"forkable_since":null,${end(epoch, t)}`);
  }
  // What the others say at the end, and the last ring of this node, from which the way around it is known.
  const seen = (event) => write(`${JSON.stringify({ ...event, t_ms: BEGAN + EPOCHS * 10_000, peer: names[0], run: hex(7) })}\n`);
  for (const who of names.slice(1)) {
    await seen({ event: "member", who, head: EPOCHS, phase: "train", ready: 0, rtt_ms: 7, send_rate: 1_250_000, link: "direct", loss: 1.8, version: "0.1.0" });
  }
  await seen({ event: "ring", roster: hex(2), position: 1, of: PEERS, to: names[1], took_ms: 1_000, sent_bytes: 2_500_000, received_bytes: 900 });
  file.end();
  await once(file, "close");
  const line = (epoch) => JSON.stringify({
    event: "evaluated", loss: lossOf(epoch) + 0.1, error: 0.02, floor: 1.7, excess: lossOf(epoch) - 1.6, unigram: 2.6, bigram: 2.2,
    t_ms: BEGAN + epoch * 10_000 + 1, peer: id(PEERS), run: hex(7), epoch,
  });
  writeFileSync(measured, `${Array.from({ length: EPOCHS / 100 }, (_, n) => line((n + 1) * 100)).join("\n")}\n`);
  return { files: [events, measured], names, own: names[0] };
}

export const EVIL = [
  "<img src=x onerror=\"window.ran=1\">", "<script>window.ran=1</script>", "\u202egnp.exe\u202c\u200b", "</script><svg onload=window.ran=1>",
  `${"long<b>".repeat(9_362)}`, "{{constructor}}", "javascript:window.ran=1", "\u001b[2J\u0007", "%3Cimg%20src=x%20onerror=window.ran=1%3E",
];

/** Writes events in which every text is one of those above. */
export function hostile(folder) {
  let n = 0;
  const evil = () => EVIL[n++ % EVIL.length];
  const peers = EVIL.map((text, at) => `${text}${at}`);
  const all = { peer: peers[0], run: EVIL[0] };
  const events = [
    { event: "started", version: evil(), device: evil(), micro_batch: 8, parameters: 9 },
    { event: "manifest", name: EVIL[4], organiser: evil(), from: evil() },
    { event: "listening", addresses: EVIL },
    ...peers.slice(1).map((who) => ({ event: "peer-found", who, direct: false })),
    { event: "peer-lost", who: peers[3], cause: EVIL[0] },
    ...EVIL.map((why) => ({ event: "fault", who: why, why })),
    ...EVIL.map((error) => ({ event: "disk", error })),
    { event: "ready", tokens: 5, loss: 1e308, epoch: 1 },
    { event: "roster", attempt: 1, members: peers, epoch: 1 },
    {
      event: "committed", attempt: 1, members: peers, weights: peers.map(() => Number.MAX_SAFE_INTEGER), state: EVIL[0], update: "", tokens: 1e15,
      loss: -1e300, sync_ms: 1, sent_bytes: 1, received_bytes: 1, forkable_since: 1, epoch: 1,
    },
    ...EVIL.map((phase) => ({ event: "aborted", attempt: 1, phase, reason: phase, epoch: 2 })),
    { event: "waiting", reason: EVIL[4], cure: EVIL[0], epoch: 2 },
  ];
  const path = join(folder, "hostile.jsonl");
  writeFileSync(path, events.map((event, at) => `${JSON.stringify({ ...event, t_ms: BEGAN + at, ...all })}\n`).join(""));
  return path;
}

/** Writes what `watch` writes: commits without anything that it would have to measure. */
export function watched(folder) {
  const members = [id(1), id(2)];
  const commit = (epoch) => ({
    event: "committed", attempt: 1, members, weights: [512, 512], state: hex(epoch), update: hex(1), tokens: 1_024 * epoch, loss: lossOf(epoch),
    sync_ms: 0, sent_bytes: 0, received_bytes: 0, forkable_since: null, epoch,
  });
  const events = [{ event: "watching", version: "0.1.0" }, ...Array.from({ length: 20 }, (_, at) => commit(at + 1)),
    ...members.map((who) => ({ event: "member", who, head: 20, phase: "train", ready: 0, rtt_ms: 9, send_rate: 1_250_000, link: null, loss: 2, version: null }))];
  const path = join(folder, "watched.jsonl");
  const all = { peer: id(0), run: hex(7) };
  writeFileSync(path, events.map((event, at) => `${JSON.stringify({ ...event, t_ms: BEGAN + at, ...all })}\n`).join(""));
  return path;
}

/** Writes folders as `sim --out` does, of equal settings but for the seed. */
export function reports(folder, count, epochs, peers, name) {
  const rows = (seed) => Array.from({ length: epochs }, (_, at) => {
    const [epoch, loss] = [at + 1, lossOf(at + seed)];
    return {
      epoch, lineage: 0, t_ms: BEGAN + at * 2_000, t_s: 1 + at * 2, attempt: 1 + (at % 7 === 0), members: [], tokens: 512 * peers,
      train_loss: loss, held_out_loss: at % 3 ? null : loss + 0.1, held_out_error: at % 3 ? null : 0.02, excess: at % 3 ? null : loss - 1.6,
      sync_ms: 40 + at, state: hex(at), reports: peers,
      peers: Array.from({ length: peers }, (_, peer) => ({
        peer, weight: (at + peer) % 5 ? 512 : null, train_loss: loss + peer / 100, sync_ms: 40, sent_bytes: 1_000, received_bytes: 900,
      })),
    };
  });
  return Array.from({ length: count }, (_, n) => {
    const path = join(folder, `seed-${n + 1}`);
    mkdirSync(path, { recursive: true });
    const made = {
      version: "0.1.0", command: ["intellect-node", "sim", "--out", name], date: "2026-11-30 18:13 UTC", machine: { cpu: name, cores: 2, system: "linux" },
      run: hex(n), seed: n + 1, peers, threads: 1, links: "loopback", parameters: 94_528, wall_s: 12.5, succeeded: true, reasons: [], weights: hex(3),
      held_out: { before: { loss: 3.3, error: 0.01, excess: 1.6, tokens: 32_768 }, after: null }, chaos_rules: [{ do: "kill", each: "epoch" }],
      entropies: { uniform: 2.77, unigram: 2.5, bigram: 2.2, floor: 1.7 + n / 10 }, manifest: { name, seed: n + 1, ring: { codec: "int8" } },
      started_ms: BEGAN, done: [{ t_ms: BEGAN + 5_000, what: name }, { t_ms: BEGAN + 9_000, what: "kill -9 peer 2" }], table: rows(n + 1),
    };
    writeFileSync(join(path, "report.json"), JSON.stringify(made));
    return path;
  });
}

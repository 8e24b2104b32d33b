// pi `SessionManager`: open, append, close for each message; every entry of the session is kept in memory.
// Promises: neither a lock nor a sync. `node pi.mjs VERB` with JSON on stdin; the answer is JSON on stdout.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const verb = process.argv[2];
const asked = JSON.parse(readFileSync(0, "utf8"));
const { SessionManager } = await import(pathToFileURL(asked.entry).href);
// The compiler of the engine needs more turns than an interpreter until it runs at full speed.
const WARMUP_TURNS = 200;

const transcript = join(asked.place, "bench.jsonl");

function messagesOf([user, assistant]) {
  const timestamp = Date.now();
  const usage = { input: 1200, output: 210, cacheRead: 0, cacheWrite: 0, totalTokens: 1410 };
  return [
    { role: "user", content: user, timestamp },
    {
      role: "assistant",
      content: [{ type: "text", text: assistant }],
      api: "anthropic-messages",
      provider: "anthropic",
      model: "m",
      usage,
      stopReason: "stop",
      timestamp,
    },
  ];
}

function summarise(samplesUs) {
  const ordered = [...samplesUs].sort((a, b) => a - b);
  const middle = ordered.length >> 1;
  const median = ordered.length % 2 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
  const mean = ordered.reduce((sum, one) => sum + one, 0) / ordered.length;
  return { us: median, mean_us: mean, p95_us: ordered[Math.floor(ordered.length * 0.95)] };
}

function turn(number) {
  return asked.turns[number % asked.turns.length];
}

// The file is written in one go: its own way would open and close it for each of the messages.
function build() {
  const timestamp = new Date().toISOString();
  const lines = [{ type: "session", version: 3, id: "bench", timestamp, cwd: asked.place }];
  let parentId = null;
  for (let number = 0; number < asked.messages / 2; number++) {
    for (const message of messagesOf(turn(number))) {
      const id = lines.length.toString(16).padStart(8, "0");
      lines.push({ type: "message", id, parentId, timestamp, message });
      parentId = id;
    }
  }
  if (asked.keep) {
    const firstKeptEntryId = lines[lines.length - asked.keep].id;
    const summary = "What was said before. ".repeat(40);
    lines.push({ type: "compaction", id: "ffffffff", parentId, timestamp, summary, firstKeptEntryId, tokensBefore: 1 });
  }
  writeFileSync(transcript, lines.map((line) => JSON.stringify(line)).join("\n") + "\n");
  return {};
}

function append() {
  const manager = SessionManager.open(transcript);
  const samples = [];
  for (let number = 0; number < WARMUP_TURNS + asked.count; number++) {
    const begin = process.hrtime.bigint();
    for (const message of messagesOf(turn(number))) manager.appendMessage(message);
    samples.push(Number(process.hrtime.bigint() - begin) / 1e3);
  }
  return summarise(samples.slice(WARMUP_TURNS));
}

function resume() {
  const samples = [];
  for (let number = 0; number < asked.times; number++) {
    const begin = process.hrtime.bigint();
    const context = SessionManager.open(transcript).buildSessionContext();
    samples.push(Number(process.hrtime.bigint() - begin) / 1e3);
    if (!context.messages.length) throw new Error("pi resumed an empty session");
  }
  return summarise(samples);
}

console.log(JSON.stringify({ build, append, resume }[verb]()));

// One live stream for each browser, shared by its tabs: browsers allow few connections to a server. The tab that holds
// a lock opens the stream and passes on what it hears; when that tab closes, the next one takes its place. Every tab
// says which session it shows, and the stream is opened again when that changes. A new stream says everything again.

const CHANNEL = "turnlog-live";
const BACKOFF_MS = [500, 1000, 2000, 5000, 10000];
const handlers = new Set();
const others = new Map();
const streamed = new Set();
const answers = new Set();
const me = [...crypto.getRandomValues(new Uint32Array(2))].join("-");
const channel = new BroadcastChannel(CHANNEL);
let shown = "";
let isLeader = false;
let source = null;
let watched = null;
let losses = 0;

// `handler` gets every frame, and {type: "connection", state: "open" | "lost"}.
export function listen(handler) {
  handlers.add(handler);
}

// The session that this tab shows; "" for none. `anew`: everything about it is told again.
export function show(session, anew = false) {
  if (shown === session && !anew) return;
  shown = session;
  if (isLeader) open(true);
  else channel.postMessage({ from: me, shows: shown });
}

function tell(frame) {
  for (const handler of handlers) handler(frame);
}

function passOn(frame) {
  tell(frame);
  channel.postMessage({ frame });
}

channel.onmessage = ({ data }) => {
  if (data.frame) {
    if (data.frame.run) streamed.add(data.frame.run);
    tell(data.frame);
  } else if (data.ask) channel.postMessage({ from: me, shows: shown });
  else if (isLeader && data.shows === null) others.delete(data.from);
  else if (isLeader) {
    others.set(data.from, data.shows);
    open(Boolean(data.shows));
  }
};

addEventListener("pagehide", () => channel.postMessage({ from: me, shows: null }));

function lead() {
  isLeader = true;
  channel.postMessage({ ask: true });
  open();
}

function open(anew = false) {
  const wanted = [...new Set([shown, ...others.values()])].filter(Boolean).sort().join(",");
  if (!anew && wanted === watched) return;
  watched = wanted;
  const old = source;
  const fresh = new EventSource(`/live?watch=${wanted}`);
  source = fresh;
  fresh.onopen = () => {
    old?.close();
    losses = 0;
    streamed.clear();
    passOn({ type: "connection", state: "open" });
    // This stream may be at another process than the one before it: then it cannot say again what was said so far.
    for (const pieces of answers) for (const frame of pieces.values()) passOn(frame);
  };
  fresh.onmessage = (event) => {
    const frame = JSON.parse(event.data);
    if (frame.run) streamed.add(frame.run);
    passOn(frame);
  };
  fresh.onerror = () => {
    old?.close();
    if (source !== fresh) return fresh.close();
    passOn({ type: "connection", state: "lost" });
    if (fresh.readyState !== EventSource.CLOSED) return;
    setTimeout(() => source === fresh && comeBack(), BACKOFF_MS[Math.min(losses++, BACKOFF_MS.length - 1)]);
  };
}

// A stream that was refused is not asked for as long as the sign-in has ended.
async function comeBack() {
  const answer = await fetch("/list/main", { headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.redirected && new URL(answer.url).pathname === "/signin") location.assign("/signin");
  else open(true);
}

// The answer to a message that was sent: frames of its turn, from the process that runs it. They are shown only where
// the live stream is at another process of the server.
export async function readAnswer(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const pieces = new Map();
  answers.add(pieces);
  let text = "";
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) break;
    text += value;
    const frames = text.split("\n\n");
    text = frames.pop();
    for (const line of frames.flatMap((one) => one.split("\n")).filter((one) => one.startsWith("data: "))) {
      const frame = JSON.parse(line.slice(6));
      pieces.set(`${frame.type} ${frame.part} ${frame.block}`, frame);
      if (!streamed.has(frame.run)) passOn(frame);
    }
  }
  answers.delete(pieces);
}

// Locks exist where the connection is secure or local. Elsewhere each tab has a stream of its own.
export function connect() {
  if (navigator.locks) navigator.locks.request(CHANNEL, () => new Promise(lead));
  else lead();
}

// One chat. The log is rendered by the server, and asked for again when the live stream says that it has grown; a turn
// that runs is shown below it, from the live stream. A message is shown at once, and gives way to the server's rendering.

import { Approvals } from "./approval.js";
import { Composer } from "./composer.js";
import { $, ask, copyOf, explain, part, patch, say } from "./dom.js";
import { listen, readAnswer, show } from "./feed.js";
import { listenForMessages } from "./messages.js";
import { Sidebar } from "./sidebar.js";
import { toast } from "./toast.js";
import { LiveTurn, noticeOf } from "./turn.js";
import { Windows } from "./windows.js";

// As the server makes them. The page makes a new chat's id itself: several messages may leave before one is answered.
function sessionId() {
  const letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  const random = [...crypto.getRandomValues(new Uint32Array(6))].map((number) => letters[number % letters.length]);
  return `ses-${String(Date.now()).padStart(13, "0")}-${random.join("")}`;
}

export class Chat {
  constructor(main) {
    this.main = main;
    this.agent = main.dataset.agent;
    this.session = main.dataset.session || sessionId();
    this.live = $("live");
    this.scroll = $("scroll");
    this.posted = Promise.resolve();
    this.posting = 0;
    this.turn = null;
    this.over = 0;
    this.refreshing = null;
    this.approvals = new Approvals(this);
    this.windows = new Windows(this);
    this.sidebar = new Sidebar(this);
    this.composer = $("composer") ? new Composer(this) : null;
    listenForMessages(this);
    listen((frame) => this.hear(frame));
    if (main.dataset.session) show(this.session);
    document.addEventListener("acted", (event) => this.acted(event));
    document.addEventListener("click", (event) => this.look(event));
    for (const button of document.querySelectorAll("[data-try]"))
      button.addEventListener("click", () => this.composer.send(button.textContent));
    this.setBusy();
    this.windows.begin();
  }

  get log() {
    return $("log");
  }

  // Whether the end of the current branch is shown, where new messages appear.
  get isAtTail() {
    return !this.log.dataset.at && !this.log.dataset.newer;
  }

  get address() {
    return `/chat/${this.agent}/${this.session}`;
  }

  hear(frame) {
    if (frame.type === "connection") return this.connection(frame.state);
    if (frame.type === "rows") return this.sidebar.changed(frame);
    if (frame.id !== this.session) return;
    switch (frame.type) {
      case "session": this.grown(frame); break;
      case "turn": this.runs(frame); break;
      case "questions": this.isAtTail && this.approvals.stored(frame.events); break;
      case "notice": this.notice(noticeOf(frame)); break;
      case "end": this.ended(frame); break;
    }
  }

  connection(state) {
    this.main.classList.toggle("offline", state === "lost");
    if (state === "lost") {
      this.isLost = true;
      this.notice(say("reconnecting"), true);
    } else if (this.isLost) {
      this.isLost = false;
      this.notice("");
      this.sidebar.refresh();
    }
  }

  grown(frame) {
    if (frame.gone) {
      if (this.main.dataset.session) this.gone();
    } else if (frame.seq > Number(this.log.dataset.seq) || this.main.dataset.session !== this.session) this.refresh();
  }

  gone() {
    this.notice(say("gone"), true);
    this.composer?.close();
    this.endLive();
    this.setBusy();
  }

  runs(frame) {
    if (!this.isAtTail || frame.run <= this.over) return;
    if (this.turn?.run !== frame.run) {
      this.turn?.article.remove();
      this.turn = new LiveTurn(frame, this.agent, this.approvals);
      const waiting = this.live.querySelector(".msg.pending");
      if (waiting && !waiting.dataset.stored) waiting.before(this.turn.article);
      else this.live.append(this.turn.article);
      this.setBusy();
    }
    this.turn.take(frame);
    this.windows.follow();
  }

  async ended(frame) {
    if (this.turn?.run === frame.run) this.turn.end();
    this.endedRun = frame.run;
    this.notice("");
    await this.refresh();
    if (frame.how === "failed") this.notice(explain(frame.error, frame.hint), true);
  }

  endLive() {
    if (this.turn) this.over = Math.max(this.over, this.turn.run);
    this.turn?.article.remove();
    this.turn = null;
  }

  // One after another: what is asked for while an answer is on its way is asked for once more afterwards.
  refresh() {
    if (!this.refreshing) {
      this.isDirty = false;
      this.refreshing = this.render().finally(() => {
        this.refreshing = null;
        if (this.isDirty) this.refresh();
      });
    } else this.isDirty = true;
    return this.refreshing;
  }

  async render() {
    const stored = [...this.live.querySelectorAll(".msg.pending[data-stored]")];
    if (!this.isAtTail) return;
    const fresh = await part(`${this.address}?first=${Math.max(1, Number(this.log.dataset.first))}`).catch(() => null);
    if (!fresh?.getElementById("log") || !this.isAtTail) return;
    this.take(fresh);
    for (const bubble of stored) bubble.remove();
    this.windows.follow();
  }

  take(fresh) {
    const log = fresh.getElementById("log");
    const { seq, first, running } = log.dataset;
    // A turn that another process runs is not over: its frames come with the answer to its message.
    const isOver = !running && (!this.turn || this.turn.turn <= Number(seq));
    if (isOver || this.endedRun === this.turn?.run) this.endLive();
    if (first !== this.log.dataset.first) patch($("older"), fresh.getElementById("older"));
    const anchor = this.windows.anchor();
    patch(this.log, log);
    for (const name of ["seq", "first", "running", "model", "at", "newer"]) {
      if (name in log.dataset) this.log.dataset[name] = log.dataset[name];
      else delete this.log.dataset[name];
    }
    this.windows.restore(anchor);
    this.windows.moved();
    this.composer?.picks.show(this.log.dataset.model);
    this.setHead(fresh);
    this.sidebar.take(fresh);
    this.setBusy();
  }

  setHead(fresh) {
    if (!$("chat-head").querySelector("details.menu[open]")) patch($("chat-head"), fresh.getElementById("chat-head"));
    const waits = this.live.querySelector(".approval-answer") ? "● " : "";
    document.title = `${waits}${$("chat-head").querySelector("h1").textContent.trim()} · Turnlog`;
  }

  // Another version of a turn, or the way back: looking writes nothing.
  async look(event) {
    const link = event.target.closest("a[data-look]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const fresh = await part(link.href).catch(() => null);
    if (!fresh?.getElementById("log")) return location.assign(link.href);
    history.replaceState(null, "", link.href);
    this.endLive();
    this.over = 0;
    patch($("chat-log"), fresh.getElementById("chat-log"));
    this.setHead(fresh);
    this.windows.begin();
    this.setBusy();
    show(this.session, true);
    $(link.hash.slice(1))?.querySelector("a[data-look], .act")?.focus({ preventScroll: true });
  }

  acted(event) {
    const { name, to } = event.detail;
    if (!["rename", "pin", "unpin", "undo", "compact", "regenerate", "retry", "discard", "rewind"].includes(name)) return;
    if (!this.isAtTail) return;
    event.preventDefault();
    if (to.startsWith(this.address)) this.refresh();
    if (["retry", "regenerate"].includes(name)) this.windows.toEnd();
  }

  // What the composer sends. The bubble is there at once, and goes when the log has the message.
  async send(message, images, rewindTo) {
    $("empty")?.remove();
    const bubble = copyOf("tpl-user");
    bubble.querySelector(".speaker").textContent = say("you");
    bubble.querySelector("p").textContent = message;
    this.live.append(bubble);
    this.notice("");
    this.posting += 1;
    this.setBusy();
    this.windows.toEnd();
    try {
      await this.inOrder(() => this.post(message, images, rewindTo));
      bubble.dataset.stored = "1";
      this.log.dataset.running = "elsewhere"; // until the server says where
    } catch (error) {
      bubble.remove();
      this.notice(say("failed-send", error.message), true);
      toast(say("failed-send", error.message), { bad: true });
      return false;
    } finally {
      this.posting -= 1;
      this.setBusy();
    }
    this.begun();
    await this.refresh();
    return true;
  }

  // One message after another, in the order in which they were written.
  inOrder(post) {
    const posted = this.posted.then(post);
    this.posted = posted.catch(() => {});
    return posted;
  }

  // Answered as soon as the words are stored. The turn is then followed by the live stream, like in every other tab.
  async post(message, images, rewindTo) {
    const body = { message, sessionId: this.session };
    if (images.length) body.images = images;
    if (rewindTo) body.rewindTo = rewindTo;
    if (this.composer.picks.named) body.model = this.composer.picks.named;
    const headers = { "Content-Type": "application/json" };
    readAnswer(await ask(`/chat/${this.agent}/say`, { method: "POST", headers, body: JSON.stringify(body) }));
  }

  begun() {
    if (this.main.dataset.session !== this.session || this.log.dataset.at) {
      this.main.dataset.session = this.session;
      delete this.log.dataset.at;
      history.replaceState(null, "", this.address);
    }
    show(this.session);
  }

  async stop() {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ sessionId: this.session });
    await fetch(`/api/agents/${this.agent}/chat/stop`, { method: "POST", headers, body }).catch(() => null);
  }

  get isBusy() {
    return this.posting > 0 || (this.turn !== null && this.turn.run !== this.endedRun) || Boolean(this.log.dataset.running);
  }

  setBusy() {
    this.live.setAttribute("aria-busy", String(this.isBusy));
    this.main.classList.toggle("busy", this.isBusy);
    if ($("stop")) $("stop").hidden = !this.isBusy;
  }

  notice(text, bad = false) {
    const place = $("notice");
    if (!place) return;
    place.textContent = text;
    place.classList.toggle("bad", bad);
  }
}

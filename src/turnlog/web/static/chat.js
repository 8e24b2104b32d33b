// The chat: sending, following a running turn, and showing what the server has rendered of it once it has ended.

import { Approvals } from "./approval.js";
import { $, copyOf, refresh, say } from "./dom.js";

const BACKOFF_MS = [500, 1000, 2000, 5000, 10000];

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
    this.posted = Promise.resolve();
    this.live = $("live");
    this.scroll = $("scroll");
    this.form = $("composer");
    this.source = null;
    this.last = "";
    this.losses = 0;
    this.atEnd = true;
    this.scroll.addEventListener("scroll", () => this.lookWhere(), { passive: true });
    this.approvals = new Approvals(this);
    this.begin();
    if (this.form) this.listen();
    if ("running" in main.dataset) this.follow();
    this.toEnd(true);
  }

  listen() {
    const box = $("message");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send(box.value);
    });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.form.requestSubmit();
      }
    });
    box.addEventListener("input", () => fit(box));
    $("stop").addEventListener("click", () => this.stop());
    $("log").addEventListener("click", (event) => {
      const button = event.target.closest("[data-edit]");
      if (button) this.edit(JSON.parse(button.dataset.edit));
    });
    for (const button of document.querySelectorAll("[data-try]")) {
      button.addEventListener("click", () => this.send(button.textContent));
    }
    box.focus({ preventScroll: true });
  }

  // The words of a turn that failed, to be said differently. They are replaced when the message is sent, not before.
  edit(words) {
    const box = $("message");
    box.value = words;
    fit(box);
    this.replaces = true;
    this.notice(say("replacing"));
    box.focus();
  }

  async discard() {
    const response = await fetch(`/api/agents/${this.agent}/sessions/${this.session}/discard`, { method: "POST" });
    if (!response.ok && response.status !== 409) throw new Error(response.statusText);
    this.replaces = false;
  }

  async send(message) {
    if (!message.trim()) return;
    const box = $("message");
    const held = box.value;
    box.value = "";
    fit(box);
    $("empty")?.remove();
    const bubble = this.add("tpl-user", say("you"));
    bubble.querySelector("p").textContent = message;
    this.notice("");
    this.busy(true);
    this.toEnd(true);
    try {
      await this.inOrder(async () => {
        if (this.replaces) await this.discard();
        await this.post(message);
      });
    } catch (error) {
      bubble.remove();
      box.value = held || message;
      fit(box);
      this.notice(say("failed-send", error.message), true);
      if (!this.source) this.busy(false);
      return;
    }
    if (!this.source) this.follow();
  }

  // One message after another, in the order in which they were written.
  inOrder(post) {
    const posted = this.posted.then(post);
    this.posted = posted.catch(() => {});
    return posted;
  }

  // Answered as soon as the words are stored. The turn is then followed like after a reload, by the one way there is.
  async post(message) {
    const response = await fetch(`/api/agents/${this.agent}/chat`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ message, sessionId: this.session }),
    });
    if (response.status === 401) location.assign("/signin");
    if (!response.ok) {
      const problem = await response.json().catch(() => ({}));
      throw new Error([problem.detail ?? response.statusText, problem.hint].filter(Boolean).join(" "));
    }
    response.body?.cancel();
    if (this.main.dataset.session !== this.session) {
      this.main.dataset.session = this.session;
      history.replaceState(null, "", `/chat/${this.agent}/${this.session}`);
    }
  }

  async stop() {
    await fetch(`/api/agents/${this.agent}/chat/stop`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ sessionId: this.session }),
    });
  }

  follow() {
    this.busy(true);
    const after = this.last ? `&after=${encodeURIComponent(this.last)}` : "";
    this.source = new EventSource(`/api/agents/${this.agent}/chat/stream?sessionId=${this.session}${after}`);
    this.fresh = true;
    this.source.onopen = () => {
      this.fresh = true;
      this.losses = 0;
      this.notice("");
    };
    this.source.onmessage = (event) => {
      if (event.lastEventId) this.last = event.lastEventId;
      this.hear(JSON.parse(event.data));
    };
    this.source.onerror = () => {
      this.notice(say("reconnecting"));
      if (this.source?.readyState !== EventSource.CLOSED) return;
      this.source = null;
      setTimeout(() => this.comeBack(), BACKOFF_MS[Math.min(this.losses++, BACKOFF_MS.length - 1)]);
    };
  }

  // A stream that was refused is not tried for ever: a session that is gone, or a sign-in that ended, has a page.
  async comeBack() {
    const answer = await fetch(`/api/agents/${this.agent}/chat/status?sessionId=${this.session}`).catch(() => null);
    if (answer && [401, 403, 404].includes(answer.status)) location.reload();
    else if (!this.source) this.follow();
  }

  hear(event) {
    switch (event.type) {
      case "text_delta": this.said().textContent += event.text; break;
      case "thinking_delta": this.thought().textContent += event.text; break;
      case "snapshot":
        // The first one of a connection stands for everything that is held of the turn.
        if (this.fresh) this.begin();
        if (event.text) this.paragraph().textContent = event.text;
        break;
      case "tool_call": this.called(event.tool_call); break;
      case "tool_result": this.returned(event); break;
      case "approval_request": this.approvals.ask(event); break;
      case "approval_answer": this.approvals.answered(event); break;
      case "queued": this.notice(say("queued", event.position)); break;
      case "compaction_start": this.notice(say("compacting")); break;
      case "compaction_end": this.notice(""); break;
      case "idle": this.end(false); break;
      case "done": case "stopped": this.end(true); break;
      case "error": this.end(true, [event.error, event.hint].filter(Boolean).join(" ")); break;
    }
    this.fresh = false;
    this.toEnd(false);
  }

  begin() {
    for (const old of this.live.querySelectorAll(".msg.assistant")) old.remove();
    this.forget();
  }

  forget() {
    this.article = this.words = this.thoughts = null;
    this.cards = new Map();
  }

  answer() {
    if (!this.article?.isConnected) {
      this.article = this.add("tpl-assistant", this.agent);
      this.words = this.article.querySelector(".streaming");
    }
    return this.article;
  }

  said() {
    this.answer();
    return this.words ?? this.paragraph();
  }

  paragraph() {
    const article = this.answer();
    if (this.words && !this.words.textContent) return this.words;
    this.words = document.createElement("p");
    this.words.className = "streaming";
    const body = document.createElement("div");
    body.className = "body prose";
    body.dir = "auto";
    body.append(this.words);
    article.append(body);
    return this.words;
  }

  thought() {
    if (!this.thoughts?.isConnected) {
      const part = copyOf("tpl-thinking");
      this.answer().querySelector("header").after(part);
      this.thoughts = part.querySelector(".streaming");
    }
    return this.thoughts;
  }

  called(call) {
    const card = copyOf("tpl-card");
    card.querySelector("code").textContent = call.name;
    card.querySelector(".tag").textContent = say("tool-running");
    card.querySelector(".in").textContent = JSON.stringify(call.input, null, 2);
    this.answer().append(card);
    this.cards.set(call.id, card);
    this.words = null;
  }

  returned(result) {
    const card = this.cards.get(result.tool_call_id);
    if (!card) return;
    card.classList.toggle("bad", Boolean(result.is_error));
    card.querySelector(".tag").textContent = say(result.is_error ? "tool-failed" : "tool-done");
    card.querySelector(".out").textContent = result.text.slice(0, 8000);
  }

  // A turn is over: the server's rendering takes the place of the stream. Another turn may follow at once, and
  // somebody may write while the rendering is on its way: only what was heard until now gives way to it.
  async end(again, trouble = "") {
    this.source?.close();
    this.source = null;
    const heard = [...this.live.children];
    this.forget();
    const parts = ["log", "chat-head"];
    if (!document.querySelector("#sessions input[type=search]").value) parts.push("session-list");
    if (await refresh(`/chat/${this.agent}/${this.session}`, ...parts)) heard.forEach((old) => old.remove());
    document.title = `${document.querySelector("#chat-head h1")?.textContent ?? ""} · Turnlog`;
    if (trouble || !this.source) this.notice(trouble, Boolean(trouble));
    if (again && !this.source) this.follow();
    else if (!this.source) this.busy(false);
    this.toEnd(false);
  }

  add(template, speaker) {
    const part = copyOf(template);
    part.querySelector(".speaker").textContent = speaker;
    this.live.append(part);
    return part;
  }

  notice(text, bad = false) {
    const place = $("notice");
    place.textContent = text;
    place.classList.toggle("bad", bad);
  }

  busy(is) {
    this.live.setAttribute("aria-busy", String(is));
    this.main.classList.toggle("busy", is);
    if ($("stop")) $("stop").hidden = !is;
  }

  // Only for those who are at the end anyway: nobody is torn away from what they read.
  toEnd(always) {
    if (always || this.atEnd) this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  lookWhere() {
    const gap = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight;
    this.atEnd = gap < 80;
  }
}

function fit(box) {
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight + 2, window.innerHeight * 0.4)}px`;
}

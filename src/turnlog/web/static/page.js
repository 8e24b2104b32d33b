// The page's only script of its own. It never makes HTML out of text: what people, models and tools say goes into
// textContent while it streams, and is replaced by what the server has rendered and sanitised once a turn has ended.

const $ = (id) => document.getElementById(id);
const headers = { "HX-Request": "true", Accept: "text/html" };
const BACKOFF_MS = [500, 1000, 2000, 5000, 10000];

document.documentElement.classList.add("scripted");

function localise(root = document) {
  const language = document.documentElement.lang;
  const today = new Date().toDateString();
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    element.title = at.toLocaleString(language);
    element.textContent = at.toDateString() === today
      ? at.toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit" })
      : at.toLocaleDateString(language, at.getFullYear() === new Date().getFullYear()
        ? { month: "short", day: "numeric" } : { year: "numeric", month: "short", day: "numeric" });
  }
}

// Takes over what is new or has changed, by id and data-rev, and leaves the rest alone: what is open stays open.
function patch(old, fresh) {
  const kept = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  const wanted = [...fresh.children].map((child) => {
    const known = child.id && kept.get(child.id);
    return known && known.dataset.rev && known.dataset.rev === child.dataset.rev ? known : document.adoptNode(child);
  });
  old.replaceChildren(...wanted);
  window.htmx?.process(old);
  localise(old);
}

async function refresh(url, ...ids) {
  const response = await fetch(url, { headers });
  if (response.redirected && new URL(response.url).pathname === "/signin") location.assign("/signin");
  if (!response.ok) return false;
  if (response.headers.get("hx-redirect")) location.assign(response.headers.get("hx-redirect"));
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const id of ids) {
    const [old, part] = [$(id), fresh.getElementById(id)];
    if (old && part) patch(old, part);
  }
  return true;
}

// Chat

// As the server makes them. The page makes a new chat's id itself: several messages may leave before one is answered.
function sessionId() {
  const letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  const random = [...crypto.getRandomValues(new Uint32Array(6))].map((number) => letters[number % letters.length]);
  return `ses-${String(Date.now()).padStart(13, "0")}-${random.join("")}`;
}

class Chat {
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
    this.begin();
    if (this.form) this.listen();
    if ("running" in main.dataset) this.follow();
    this.toEnd(true);
  }

  text(name, value) {
    return this.main.dataset[name].replace("%", () => value ?? "");
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
    this.notice(this.text("tReplacing"));
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
    const bubble = this.add("tpl-user", this.text("tYou"));
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
      this.notice(this.text("tFailed", error.message), true);
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
      this.notice(this.text("tReconnecting"));
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
      case "approval_request": this.asked(event); break;
      case "approval_answer": this.worded(event); break;
      case "queued": this.notice(this.text("tQueued", event.position)); break;
      case "compaction_start": this.notice(this.text("tCompacting")); break;
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
      const part = $("tpl-thinking").content.firstElementChild.cloneNode(true);
      this.answer().querySelector("header").after(part);
      this.thoughts = part.querySelector(".streaming");
    }
    return this.thoughts;
  }

  called(call) {
    const card = $("tpl-card").content.firstElementChild.cloneNode(true);
    card.querySelector("code").textContent = call.name;
    card.querySelector(".tag").textContent = this.text("tRunning");
    card.querySelector(".in").textContent = JSON.stringify(call.input, null, 2);
    this.answer().append(card);
    this.cards.set(call.id, card);
    this.words = null;
  }

  returned(result) {
    const card = this.cards.get(result.tool_call_id);
    if (!card) return;
    card.classList.toggle("bad", Boolean(result.is_error));
    card.querySelector(".tag").textContent = this.text(result.is_error ? "tBad" : "tDone");
    card.querySelector(".out").textContent = result.text.slice(0, 8000);
  }

  // A call waits for a person's word. The card has the diff, and buttons unless this reader may not write.
  asked(request) {
    if (this.live.querySelector(`[data-call="${CSS.escape(request.call_id)}"]`)) return;
    const card = $("tpl-approval").content.firstElementChild.cloneNode(true);
    card.dataset.call = request.call_id;
    card.querySelector("code").textContent = request.tool;
    card.querySelector(".why").textContent = request.why;
    card.querySelector(".diff").textContent = request.preview || JSON.stringify(request.input, null, 2);
    const edit = card.querySelector(".edit textarea");
    edit.value = JSON.stringify(request.input, null, 2);
    const always = card.querySelector("[data-word=always]");
    always.title = request.always;
    always.hidden = !request.always;
    for (const button of card.querySelectorAll("[data-word]"))
      button.addEventListener("click", () => this.word(card, request, button.dataset.word, edit.value));
    this.answer().append(card);
    this.words = null;
    this.notice(this.text("tAsks"));
    document.title = `● ${document.title.replace(/^● /, "")}`;
    card.querySelector("[data-word=approved]")?.focus({ preventScroll: true });
  }

  async word(card, request, word, edited) {
    const body = { word: word === "denied" ? "denied" : "approved" };
    if (word === "denied") body.words = card.querySelector("input").value;
    if (word === "always") body.always = true;
    try {
      const given = JSON.parse(edited);
      if (word !== "denied" && JSON.stringify(given) !== JSON.stringify(request.input)) body.input = given;
    } catch (error) {
      return this.notice(String(error), true);
    }
    const url = `/api/agents/${this.agent}/sessions/${this.session}/approvals/${encodeURIComponent(request.call_id)}`;
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) }).catch(() => null);
    if (!answer?.ok) this.notice((await answer?.json().catch(() => null))?.detail ?? this.text("tReconnecting"), true);
  }

  worded(answer) {
    document.title = document.title.replace(/^● /, "");
    const card = this.live.querySelector(`[data-call="${CSS.escape(answer.call_id)}"]`);
    this.notice("");
    if (!card) return;
    card.querySelector(".tag").textContent = this.text(answer.word === "approved" ? "tApproved" : "tDenied", answer.by);
    card.querySelector(".approval-answer")?.remove();
    card.open = false;
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
    const part = $(template).content.firstElementChild.cloneNode(true);
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

// Live tails: of a session by its events, of a channel's log by asking again.

const tails = new Map();

function attend() {
  for (const [element, end] of tails) {
    if (!element.isConnected) {
      end();
      tails.delete(element);
    }
  }
  for (const element of document.querySelectorAll("[data-tail], [data-poll]")) {
    if (!tails.has(element)) tails.set(element, element.dataset.tail ? tail(element) : poll(element));
  }
}

function tail(element) {
  const source = new EventSource(element.dataset.tail);
  let waiting = 0;
  source.onmessage = () => {
    waiting ||= setTimeout(() => {
      waiting = 0;
      follow(element, element.dataset.again, element.id || "drawer-log");
    }, 200);
  };
  return () => source.close();
}

function poll(element) {
  const timer = setInterval(() => {
    if (!document.hidden) follow(element, element.dataset.poll, "drawer-log");
  }, 3000);
  return () => clearInterval(timer);
}

async function follow(element, url, id) {
  const near = element.scrollHeight - element.scrollTop - element.clientHeight < 160;
  await refresh(url, id);
  if (near && element.classList.contains("drawer-scroll")) element.scrollTop = element.scrollHeight;
}

// The drawer of Chats

function drawerOpened() {
  const drawer = $("drawer");
  if (!drawer?.querySelector(".drawer-head")) return;
  drawer.classList.add("open");
  const scroll = drawer.querySelector(".drawer-scroll");
  if (scroll && !scroll.dataset.seen) {
    scroll.dataset.seen = "1";
    scroll.scrollTop = scroll.scrollHeight;
    drawer.querySelector("[data-close-drawer]")?.focus({ preventScroll: true });
  }
}

function closeDrawer() {
  const drawer = $("drawer");
  drawer.classList.remove("open");
  drawer.querySelector(".drawer-scroll")?.remove();
  const row = document.querySelector("tr.chosen [data-row]");
  document.querySelector("tr.chosen")?.classList.remove("chosen");
  row?.focus();
  attend();
}

document.addEventListener("click", (event) => {
  const row = event.target.closest("[data-row]");
  if (row) {
    document.querySelector("tr.chosen")?.classList.remove("chosen");
    row.closest("tr").classList.add("chosen");
  }
  if (event.target.closest("[data-close-drawer]") && document.querySelector(".chats-list")) {
    event.preventDefault();
    closeDrawer();
  }
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const menu = document.querySelector("details.menu[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    } else if ($("drawer")?.classList.contains("open") && document.querySelector(".chats-list")) closeDrawer();
    else if (location.hash === "#sessions") location.hash = "";
  }
  if (event.key === "k" && (event.metaKey || event.ctrlKey)) {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      if (search.closest("#sessions")) location.hash = "#sessions";
      search.focus();
    }
  }
});

// Colours change without a reload, so that nothing that was typed is lost.
document.querySelector("form.prefer")?.addEventListener("submit", (event) => {
  event.target.elements.next.value = location.pathname + location.search;
  if (event.submitter?.name !== "theme") return;
  event.preventDefault();
  document.documentElement.dataset.theme = event.submitter.value;
  const body = new URLSearchParams({ theme: event.submitter.value });
  fetch(event.target.action, { method: "POST", body, redirect: "manual" });
  document.querySelector(event.submitter.value === "dark" ? ".to-light" : ".to-dark").focus();
});

document.querySelector("form[data-at-once]")?.requestSubmit();

new MutationObserver((changes) => {
  attend();
  drawerOpened();
  for (const change of changes) for (const node of change.addedNodes) if (node.querySelectorAll) localise(node);
}).observe(document.body, { childList: true, subtree: true });

localise();
attend();
drawerOpened();
const main = document.querySelector("main.chat");
if (main) new Chat(main);

// The list of chats: it follows the live stream, and marks what was not read in this browser.

import { $, patch, part } from "./dom.js";

const SEEN = "turnlog.seen";
const SEEN_MAX = 500;

function read() {
  try {
    return JSON.parse(localStorage.getItem(SEEN) ?? "{}");
  } catch {
    return {};
  }
}

export class Sidebar {
  constructor(chat) {
    this.chat = chat;
    this.list = $("session-list");
    this.waiting = 0;
    this.learn();
    this.mark();
    document.addEventListener("visibilitychange", () => this.mark());
    addEventListener("storage", (event) => event.key === SEEN && this.mark());
  }

  get links() {
    return [...this.list.querySelectorAll("a[data-id]")];
  }

  // What is there when a browser comes for the first time counts as read.
  learn() {
    const seen = read();
    let isNew = false;
    for (const link of this.links) {
      if (link.dataset.id in seen) continue;
      seen[link.dataset.id] = Number(link.dataset.count);
      isNew = true;
    }
    if (isNew) this.write(seen);
  }

  write(seen) {
    localStorage.setItem(SEEN, JSON.stringify(Object.fromEntries(Object.entries(seen).slice(-SEEN_MAX))));
  }

  mark() {
    const seen = read();
    const here = document.hidden ? "" : this.chat.session;
    for (const link of this.links) {
      const { id, count } = link.dataset;
      if (id === here && seen[id] !== Number(count)) {
        seen[id] = Number(count);
        this.write(seen);
      }
      const isUnread = Number(count) > (seen[id] ?? 0);
      link.classList.toggle("unread", isUnread);
      link.querySelector(".unread-word").hidden = !isUnread;
    }
  }

  changed(frame) {
    if (frame.agent === this.chat.agent && (frame.mine || this.links.some((link) => link.dataset.id === frame.id)))
      this.waiting ||= setTimeout(() => this.refresh(), 150);
  }

  async refresh() {
    clearTimeout(this.waiting);
    this.waiting = 0;
    const query = new URLSearchParams({ current: this.chat.session });
    if (new URLSearchParams(location.search).has("trash")) query.set("trash", "1");
    const fresh = await part(`/list/${this.chat.agent}?${query}`).catch(() => null);
    if (fresh) this.put(fresh.body);
  }

  take(fresh) {
    if (new URLSearchParams(location.search).has("trash")) return;
    const list = fresh.getElementById("session-list");
    if (list) this.put(list);
  }

  put(fresh) {
    const top = this.list.scrollTop;
    patch(this.list, fresh);
    this.list.scrollTop = top;
    this.mark();
  }
}

// Where the reader is in a long chat. Older messages are loaded when the reader comes near them, a window at a time, and
// only a few windows are kept: what is far away is dropped, and loaded again on the way back. What is being read stays
// where it is, whatever is added or dropped above it.

import { $, copyOf, localise, make, part, say } from "./dom.js";

const KEPT = 4;
const NEAR_PX = 600;
const AT_END_PX = 80;

export class Windows {
  constructor(chat) {
    this.chat = chat;
    this.scroll = chat.scroll;
    this.isAtEnd = true;
    this.isLoading = false;
    this.lastTop = 0;
    this.scroll.addEventListener("scroll", () => this.moved(), { passive: true });
    $("to-end").addEventListener("click", (event) => {
      event.preventDefault();
      if (this.chat.isAtTail && !this.hasGap) this.toEnd();
      else location.assign(this.chat.address);
    });
    const sizes = new ResizeObserver(() => this.follow());
    for (const part of [this.scroll, $("chat-log"), chat.live]) sizes.observe(part);
  }

  get older() {
    return $("older");
  }

  get pages() {
    return [...this.older.querySelectorAll(":scope > .window")];
  }

  get hasGap() {
    return Boolean(this.older.querySelector(":scope > .gap"));
  }

  begin() {
    const target = location.hash.startsWith("#e") && $(location.hash.slice(1));
    if (target) {
      target.classList.add("landed");
      const summary = target.matches(".divider") && target.querySelector("details");
      if (summary) summary.open = true;
      target.scrollIntoView({ block: "center" });
      this.isAtEnd = false;
    } else this.toEnd();
    this.moved();
  }

  // What is being read, and where on the screen it is.
  anchor() {
    if (this.isAtEnd) return null;
    const top = this.scroll.getBoundingClientRect().top;
    const element = [...this.scroll.querySelectorAll("[id^=e]")].find((one) => one.getBoundingClientRect().bottom > top);
    return element ? { id: element.id, y: element.getBoundingClientRect().top } : null;
  }

  restore(anchor) {
    const element = anchor && $(anchor.id);
    if (element) this.scroll.scrollTop += element.getBoundingClientRect().top - anchor.y;
  }

  toEnd() {
    this.isAtEnd = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.showWayDown();
  }

  // Only if the reader is at the end already: otherwise the text that they read would move.
  follow() {
    if (this.isAtEnd) this.scroll.scrollTop = this.scroll.scrollHeight;
    else this.showWayDown();
  }

  // Only going up leaves the end: what is added below does not.
  moved() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const isNear = scrollHeight - scrollTop - clientHeight < AT_END_PX;
    if (isNear) this.isAtEnd = this.chat.isAtTail;
    else if (scrollTop < this.lastTop || !this.chat.isAtTail) this.isAtEnd = false;
    this.lastTop = scrollTop;
    this.showWayDown();
    if (this.scroll.scrollTop < NEAR_PX) this.loadOlder();
    const hole = this.older.querySelector(":scope > .gap");
    if (hole && hole.getBoundingClientRect().top < this.scroll.getBoundingClientRect().bottom + NEAR_PX) this.loadNewer(hole);
  }

  showWayDown() {
    $("to-end").hidden = this.isAtEnd || this.scroll.scrollHeight - this.scroll.clientHeight < AT_END_PX;
  }

  async fetchWindow(query) {
    this.isLoading = true;
    const at = this.chat.log.dataset.at;
    const fresh = await part(`${this.chat.address}/window?${query}${at ? `&at=${at}` : ""}`).catch(() => null);
    this.isLoading = false;
    const page = fresh?.querySelector(".window");
    if (!page) return null;
    const adopted = document.adoptNode(page);
    localise(adopted);
    return adopted;
  }

  async loadOlder() {
    const before = this.older.dataset.before;
    if (!before || this.isLoading) return;
    const skeleton = copyOf("tpl-skeleton");
    this.older.prepend(skeleton);
    const page = await this.fetchWindow(`before=${before}`);
    const anchor = this.anchor() ?? this.first();
    skeleton.remove();
    if (page) {
      for (const note of this.older.querySelectorAll(":scope > .note")) note.remove();
      this.older.prepend(page);
      if (page.dataset.older) this.older.dataset.before = page.dataset.older;
      else delete this.older.dataset.before;
      this.dropNewer();
    }
    this.restore(anchor);
    if (page) this.moved();
  }

  first() {
    const element = this.chat.log.querySelector("[id^=e]");
    return element && { id: element.id, y: element.getBoundingClientRect().top };
  }

  // Drops windows below the reader; a gap leads back to them.
  dropNewer() {
    const extra = this.pages.slice(KEPT);
    if (!extra.length) return;
    const kept = this.pages[KEPT - 1];
    for (const page of extra) page.remove();
    this.setGap(kept.dataset.last);
  }

  setGap(after) {
    this.older.querySelector(":scope > .gap")?.remove();
    if (Number(after) + 1 >= Number(this.chat.log.dataset.first)) return;
    const gap = make("p", { class: "note gap", "data-after": after }, copyOf("tpl-skeleton"));
    gap.append(make("a", { class: "button small", href: this.chat.address, text: say("to-newest") }));
    this.older.append(gap);
  }

  async loadNewer(gap) {
    if (this.isLoading) return;
    const page = await this.fetchWindow(`after=${gap.dataset.after}`);
    if (!page || !gap.isConnected) return;
    const anchor = this.anchor();
    const first = Number(this.chat.log.dataset.first);
    for (const item of [...page.children]) if (Number(item.id.slice(1)) >= first && !item.matches(".divider")) item.remove();
    gap.before(page);
    this.setGap(Math.min(Number(page.dataset.last), first - 1));
    const extra = this.pages.slice(0, -KEPT);
    for (const old of extra) old.remove();
    if (extra.length) this.older.dataset.before = this.pages[0].dataset.first;
    this.restore(anchor);
  }
}

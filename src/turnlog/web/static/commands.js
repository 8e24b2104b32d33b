// Commands of the composer: /compact, /fork, … with completion. Each does what a button of the page does.

import { post } from "./actions.js";
import { $, make, say } from "./dom.js";
import { showKeys } from "./keys.js";
import { openSearch } from "./search.js";
import { toast, toastLater } from "./toast.js";

// What can be done only with a chat that exists.
const OF_CHAT = ["rename", "compact", "undo", "fork", "retry", "delete", "details", "pin", "rewind"];

export class Commands {
  constructor(chat, box) {
    this.chat = chat;
    this.box = box;
    this.popup = $("completion");
    this.names = [...$("texts").attributes].map((one) => one.name).filter((name) => name.startsWith("data-command-"))
      .map((name) => name.slice("data-command-".length));
    this.popup.addEventListener("mousedown", (event) => {
      const option = event.target.closest("[role=option]");
      if (!option) return;
      event.preventDefault();
      this.take(option);
    });
  }

  get options() {
    return [...this.popup.querySelectorAll("[role=option]")];
  }

  get chosen() {
    return this.popup.hidden ? null : this.popup.querySelector("[aria-selected=true]");
  }

  typed() {
    const begun = /^\/([\w-]*)$/.exec(this.box.value);
    const fitting = begun ? this.names.filter((name) => name.startsWith(begun[1])) : [];
    this.popup.replaceChildren(...fitting.map((name, n) => make("div", { role: "option", id: `command-${name}`, "aria-selected": String(n === 0), "data-name": name },
      make("code", { text: `/${name}` }), make("span", { text: say(`command-${name}`) }))));
    this.popup.hidden = !fitting.length;
    this.announce();
  }

  announce() {
    if (this.chosen) this.box.setAttribute("aria-activedescendant", this.chosen.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  // Whether the key was for the list.
  key(event) {
    if (!this.chosen) return false;
    const at = this.options.indexOf(this.chosen);
    if (["ArrowDown", "ArrowUp"].includes(event.key)) {
      const next = this.options.at((at + (event.key === "ArrowDown" ? 1 : -1)) % this.options.length);
      this.chosen.setAttribute("aria-selected", "false");
      next.setAttribute("aria-selected", "true");
      next.scrollIntoView({ block: "nearest" });
      this.announce();
    } else if (event.key === "Tab" || (event.key === "Enter" && this.box.value !== `/${this.chosen.dataset.name}`)) this.take(this.chosen);
    else if (event.key === "Escape") this.popup.hidden = true;
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  take(option) {
    this.box.value = `/${option.dataset.name} `;
    this.popup.hidden = true;
    this.announce();
    this.box.focus();
  }

  // Whether the text was a command.
  run(text) {
    const [, name, rest = ""] = /^\/(\S*)(?:\s+([\s\S]*))?$/.exec(text);
    this.popup.hidden = true;
    const isKnown = this.names.includes(name);
    if (!isKnown) toast(say("unknown-command", name), { bad: true });
    else if (OF_CHAT.includes(name) && !this.chat.main.dataset.session) toast(say("no-messages"), { bad: true });
    else this[name](rest.trim());
    return isKnown;
  }

  async act(name, fields, does = name) {
    const done = await post(`/session/${this.chat.agent}/${this.chat.session}/${name}`, fields);
    if (!done) return;
    if (done.to.startsWith(this.chat.address)) {
      toast(say(`did-${does}`));
      this.chat.refresh();
    } else {
      toastLater(say(`did-${does}`));
      location.assign(done.to);
    }
  }

  new() { location.assign(`/chat/${this.chat.agent}`); }
  model(name) { this.chat.composer.picks.byName(name); }
  rename(title) { this.act("rename", { title }); }
  compact(focus) { this.act("compact", { focus }); }
  undo() { this.act("undo"); }
  fork() { this.act("fork"); }
  retry() { this.act("retry"); }
  delete() { this.act("trash"); }
  search(words) { openSearch(words); }
  details() { location.assign(`/session/${this.chat.agent}/${this.chat.session}`); }
  stop() { this.chat.stop(); }
  help() { showKeys(); }
  pin() { this.act("pin", { seq: this.chat.composer.lastMessage() }); }
  rewind() { this.act("rewind", { seq: this.chat.composer.lastMessage() - 1 }); }
}

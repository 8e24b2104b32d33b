// The field where a message is written: drafts kept for each chat, editing of an earlier message, commands, files, and
// the keys Enter, Escape and ↑.

import { Attachments } from "./attachments.js";
import { Commands } from "./commands.js";
import { $, say } from "./dom.js";
import { openMenu } from "./menus.js";
import { wordsOf } from "./messages.js";
import { Picks } from "./picks.js";
import { toast } from "./toast.js";

const COUNTED_CHARS = 2000;
const COUNT_AFTER_MS = 500;

export class Composer {
  constructor(chat) {
    this.chat = chat;
    this.form = $("composer");
    this.box = $("message");
    this.replaces = 0;
    this.files = new Attachments(this.form, () => this.changed());
    this.commands = new Commands(chat, this.box);
    this.picks = new Picks(chat);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("input", () => this.changed());
    $("stop").addEventListener("click", () => chat.stop());
    $("cancel-edit").addEventListener("click", () => this.endEdit());
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-edit]");
      if (button) this.edit(Number(button.dataset.edit));
    });
    document.addEventListener("keydown", (event) => this.escape(event));
    this.box.value = localStorage.getItem(this.place) ?? "";
    this.fit();
    if (!location.hash || !location.hash.startsWith("#e")) this.box.focus({ preventScroll: true });
  }

  get place() {
    return `turnlog.draft.${this.chat.agent}.${this.chat.main.dataset.session || "new"}`;
  }

  changed() {
    this.fit();
    this.commands.typed();
    if (!this.replaces) this.keep(this.box.value);
    clearTimeout(this.counting);
    this.counting = setTimeout(() => this.count(), COUNT_AFTER_MS);
  }

  keep(text) {
    if (text) localStorage.setItem(this.place, text);
    else localStorage.removeItem(this.place);
  }

  fit() {
    this.box.style.height = "auto";
    this.box.style.height = `${Math.min(this.box.scrollHeight + 2, window.innerHeight * 0.4)}px`;
  }

  get text() {
    return [this.box.value.trim(), ...this.files.texts].filter(Boolean).join("\n\n");
  }

  // What is typed is counted by the server, where the rule is, and only if it is long.
  async count() {
    const text = this.text;
    $("typed-tokens").textContent = "";
    if (text.length < COUNTED_CHARS) return;
    const answer = await fetch("/count-tokens", { method: "POST", body: text }).catch(() => null);
    const counted = answer?.ok ? await answer.json() : null;
    if (counted && text === this.text) $("typed-tokens").textContent = say("typed-tokens", counted.tokens.toLocaleString());
  }

  key(event) {
    if (event.isComposing || this.commands.key(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.form.requestSubmit();
    } else if (event.key === "ArrowUp" && !this.box.value && !event.altKey && this.lastTurn()) {
      event.preventDefault();
      this.edit(this.lastTurn());
    }
  }

  // Escape ends what is nearest: the editing of a message, then the answer.
  escape(event) {
    if (event.key !== "Escape" || event.defaultPrevented || openMenu() || document.querySelector("dialog[open]")) return;
    if (this.replaces) this.endEdit();
    else if (this.chat.isBusy) this.chat.stop();
    else return;
    event.preventDefault();
  }

  // The newest message that began a turn and can be edited.
  lastTurn() {
    const buttons = [...this.chat.log.querySelectorAll(".msg.user [data-edit]")];
    return buttons.length ? Number(buttons.at(-1).dataset.edit) : 0;
  }

  // The same while a turn runs, when nothing can be edited; or the newest message at all.
  lastMessage() {
    return this.lastTurn() || Number([...this.chat.log.querySelectorAll(".msg.user[id]")].at(-1)?.id.slice(1) ?? 0);
  }

  // The words of an earlier message, to be said differently. They are replaced when the message is sent, not before.
  async edit(seq) {
    const address = `/session/${this.chat.agent}/${this.chat.session}/entry/${seq}`;
    try {
      const { text, pictures } = await wordsOf(address);
      this.files.clear();
      for (let n = 0; n < pictures; n++) {
        const blob = await (await fetch(`${address}/picture/${n}`)).blob();
        await this.files.add([new File([blob], `${n + 1}.${blob.type.split("/")[1]}`, { type: blob.type })]);
      }
      this.replaces = seq;
      this.box.value = text;
    } catch (error) {
      return toast(error.message, { bad: true });
    }
    $("editing").hidden = false;
    this.fit();
    this.box.focus();
    this.box.setSelectionRange(this.box.value.length, this.box.value.length);
  }

  endEdit() {
    this.replaces = 0;
    $("editing").hidden = true;
    this.files.clear();
    this.box.value = localStorage.getItem(this.place) ?? "";
    this.fit();
    this.box.focus();
  }

  submit() {
    if (this.box.value.startsWith("/") && this.commands.run(this.box.value.trim())) return this.clear();
    if (!this.box.value.startsWith("/")) this.send(this.text, this.files.images);
  }

  clear() {
    this.box.value = "";
    this.replaces = 0;
    $("editing").hidden = true;
    $("typed-tokens").textContent = "";
    this.files.clear();
    this.fit();
    this.keep("");
  }

  async send(text, images = []) {
    if (!text.trim()) {
      if (images.length) toast(say("words-too"), { bad: true });
      return;
    }
    const written = this.box.value;
    const { at } = this.chat.log.dataset;
    const rewindTo = this.replaces ? this.replaces - 1 : Number(at) || 0;
    const replaced = this.replaces;
    const files = [...this.files.items];
    this.clear();
    if (await this.chat.send(text, images, rewindTo)) return;
    this.replaces = replaced;
    $("editing").hidden = !replaced;
    this.box.value = written || text;
    for (const file of files) this.files.put(file);
    this.changed();
  }

  close() {
    this.form.hidden = true;
  }
}

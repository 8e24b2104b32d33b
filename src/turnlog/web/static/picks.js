// The agent and the model of a chat, chosen in the composer. A chat that is stored has its model in its log; that of a new
// chat goes with its first message. Another agent is another chat.

import { post } from "./actions.js";
import { $, say } from "./dom.js";
import { toast } from "./toast.js";

export class Picks {
  constructor(chat) {
    this.chat = chat;
    this.models = $("pick-model");
    this.models?.addEventListener("change", () => this.choose());
    $("pick-agent")?.addEventListener("change", (event) => this.toAgent(event.target.value));
  }

  get isStored() {
    return Boolean(this.chat.main.dataset.session);
  }

  // What a first message names.
  get named() {
    return this.isStored ? "" : this.models?.value ?? "";
  }

  async choose() {
    const { value, selectedOptions: [option] } = this.models;
    if (this.isStored && !(await post(`/session/${this.chat.agent}/${this.chat.session}/model`, { model: value }))) {
      this.models.value = this.chat.log.dataset.model;
      return;
    }
    toast(say("did-model", option.textContent));
    if (this.isStored) this.chat.refresh();
  }

  // As the log says, which another tab may have changed.
  show(model) {
    if (this.models && [...this.models.options].some((one) => one.value === model)) this.models.value = model;
  }

  // By a name that was typed, or a part of it.
  byName(name) {
    const fitting = [...(this.models?.options ?? [])].filter((one) => !one.disabled && `${one.value} ${one.textContent}`.includes(name));
    const found = fitting.find((one) => [one.value, one.textContent].includes(name)) ?? (fitting.length === 1 ? fitting[0] : null);
    if (!this.models) return toast(say("one-model"), { bad: true });
    if (!name) return this.models.focus();
    if (!found) return toast(say("no-such-model", name), { bad: true });
    this.models.value = found.value;
    this.choose();
  }

  // What is typed goes along.
  toAgent(name) {
    const typed = $("message").value;
    if (typed) localStorage.setItem(`turnlog.draft.${name}.new`, typed);
    localStorage.removeItem(`turnlog.draft.${this.chat.agent}.new`);
    location.assign(`/chat/${name}`);
  }
}

// Calls that wait for a person's approval. The card has the diff, and buttons unless this reader may not write.

import { ask, copyOf, say } from "./dom.js";

export class Approvals {
  // `chat` has: agent, session, live (where cards are), notice(text, bad).
  constructor(chat) {
    this.chat = chat;
  }

  // A model may use a call id again, so a question is known by its seq. `article`: the message that the card joins.
  ask(request, article) {
    if (this.chat.live.querySelector(`[data-question="${request.seq}"]`)) return;
    const card = copyOf("tpl-approval");
    card.dataset.question = request.seq;
    card.dataset.waits = request.call_id;
    card.querySelector("code").textContent = request.tool;
    card.querySelector(".why").textContent = request.why;
    card.querySelector(".diff").textContent = request.preview || JSON.stringify(request.input, null, 2);
    const edit = card.querySelector(".edit textarea");
    if (edit) edit.value = JSON.stringify(request.input, null, 2);
    for (const always of card.querySelectorAll("[data-word=always], [data-word=everywhere]")) {
      always.title = request.always;
      always.hidden = !request.always;
    }
    const means = card.querySelector("[data-always]");
    if (means) {
      means.hidden = !request.always;
      means.querySelector("code").textContent = request.always;
    }
    for (const button of card.querySelectorAll("[data-word]"))
      button.addEventListener("click", () => this.word(card, request, button.dataset.word, edit.value));
    article.append(card);
    this.chat.notice(say("approval-asks"));
    document.title = `● ${document.title.replace(/^● /, "")}`;
    // Not while somebody writes: the next Enter or space would approve what was not read.
    if (!document.activeElement?.value) card.querySelector("[data-word=approved]")?.focus({ preventScroll: true });
  }

  // The questions that wait in the log, where no frames of their turn come: a process that is gone has asked them, or
  // another one. Their cards stand by themselves.
  stored(requests) {
    const waiting = new Set(requests.map((request) => String(request.seq)));
    const cards = [...this.chat.live.querySelectorAll(":scope > [data-question]")];
    const closed = cards.filter((card) => !waiting.has(card.dataset.question));
    for (const card of closed) card.remove();
    if (closed.length) this.settle();
    for (const request of requests) this.ask(request, this.chat.live);
  }

  // No mark in the title when nothing waits any more.
  settle() {
    if (this.chat.live.querySelector("[data-waits]")) return;
    document.title = document.title.replace(/^● /, "");
    this.chat.notice("");
  }

  async word(card, request, word, edited) {
    const body = { word: word === "denied" ? "denied" : "approved", seq: request.seq };
    if (word === "denied") body.words = card.querySelector("input").value;
    if (word === "always") body.always = true;
    if (word === "everywhere") body.always = "everywhere";
    try {
      const given = word === "denied" ? request.input : JSON.parse(edited);
      if (JSON.stringify(given) !== JSON.stringify(request.input)) body.input = given;
    } catch (error) {
      return this.chat.notice(say("not-json", error.message), true);
    }
    const { agent, session } = this.chat;
    const url = `/api/agents/${agent}/sessions/${session}/approvals/${encodeURIComponent(request.call_id)}`;
    const headers = { "Content-Type": "application/json" };
    await ask(url, { method: "POST", headers, body: JSON.stringify(body) })
      .catch((error) => this.chat.notice(error.message, true));
  }

  answered(answer) {
    const card = this.chat.live.querySelector(`[data-waits="${CSS.escape(answer.call_id)}"]`);
    card?.removeAttribute("data-waits");
    this.settle();
    if (!card) return;
    const word = answer.word === "approved" ? "approval-approved" : answer.by ? "approval-denied" : "approval-unanswered";
    card.querySelector(".tag").textContent = say(word, answer.by);
    card.querySelector(".approval-answer")?.remove();
    card.open = false;
  }
}

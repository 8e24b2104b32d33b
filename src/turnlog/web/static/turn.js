// A running turn, piece by piece as the server renders it. A piece replaces the one with its number, so nothing is shown
// twice, and pieces that did not change are left alone.

import { copyOf, localise, say } from "./dom.js";

function elementOf(html) {
  return document.adoptNode(new DOMParser().parseFromString(html, "text/html").body.firstElementChild);
}

function replace(old, fresh) {
  const [before, after] = [old.querySelector("pre"), fresh.querySelector("pre")];
  const [top, left] = before ? [before.scrollTop, before.scrollLeft] : [0, 0];
  if (old.open) fresh.open = true;
  old.replaceWith(fresh);
  if (after) [after.scrollTop, after.scrollLeft] = [top, left];
}

export class LiveTurn {
  constructor(frame, speaker, approvals) {
    this.turn = frame.turn;
    this.run = frame.run;
    this.approvals = approvals;
    this.article = copyOf("tpl-assistant");
    this.article.querySelector(".speaker").textContent = speaker;
    this.article.append(copyOf("tpl-skeleton"));
    this.parts = [];
    this.shown = new Map();
  }

  take(frame) {
    if (frame.part === undefined) return;
    const place = `${frame.part}.${frame.block}`;
    const said = frame.html || JSON.stringify(frame.event);
    if (this.shown.get(place) === said) return;
    this.shown.set(place, said);
    if (frame.kind !== "note") this.article.querySelector(".skeleton")?.remove();
    switch (frame.kind) {
      case "text": this.block(this.part(frame, "tpl-text"), frame); break;
      case "thinking": this.block(this.part(frame, "tpl-thinking").querySelector(".prose"), frame); break;
      case "call": this.call(frame); break;
      case "approval": this.approval(frame); break;
      case "note": this.note(frame); break;
    }
  }

  part(frame, template) {
    if (!this.parts[frame.part]) {
      for (const old of this.article.querySelectorAll(".streaming")) old.classList.remove("streaming");
      this.parts[frame.part] = copyOf(template);
      this.article.append(this.parts[frame.part]);
    }
    return this.parts[frame.part];
  }

  block(body, frame) {
    const fresh = elementOf(frame.html);
    const old = body.children[frame.block];
    if (old) replace(old, fresh);
    else body.append(fresh);
    localise(fresh.parentElement ?? fresh);
  }

  call(frame) {
    const fresh = elementOf(frame.html);
    const old = this.parts[frame.part];
    if (old) replace(old, fresh);
    else this.article.append(fresh);
    this.parts[frame.part] = fresh;
  }

  note(frame) {
    this.parts[frame.part] = elementOf(frame.html);
    const skeleton = this.article.querySelector(".skeleton");
    if (skeleton) skeleton.before(this.parts[frame.part]);
    else this.article.append(this.parts[frame.part]);
  }

  approval(frame) {
    this.parts[frame.part] = this.article;
    if (frame.event.type === "approval_request") this.approvals.ask(frame.event, this.article);
    else this.approvals.answered(frame.event);
  }

  end() {
    this.article.querySelector(".skeleton")?.remove();
    for (const old of this.article.querySelectorAll(".streaming")) old.classList.remove("streaming");
  }
}

export function noticeOf(frame) {
  return frame.what ? say(frame.what, frame.n ?? "") : "";
}

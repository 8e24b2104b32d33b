// Forms with data-act are sent without leaving the page: a toast says what was done, or why it was not. The server
// answers with the address where the outcome can be seen (`to`). data-undo is the address of the form that takes it back.

import { explain, say } from "./dom.js";
import { toast, toastLater } from "./toast.js";

// Gives {to}, or null after a toast that says what went wrong.
export async function post(url, fields = {}) {
  const headers = { Accept: "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body: new URLSearchParams(fields) }).catch(() => null);
  const told = await answer?.json().catch(() => null);
  if (answer?.status === 401) location.assign("/signin");
  if (answer?.ok && told) return told;
  toast(explain(told?.detail ?? say("unreachable"), told?.hint), { bad: true });
  return null;
}

async function act(form) {
  const { act: name, undo, undoSeq } = form.dataset;
  const action = undo ? { label: say("undo"), post: undo, fields: undoSeq ? { seq: undoSeq } : {} } : undefined;
  const buttons = form.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  const done = await post(form.action, new FormData(form));
  for (const button of buttons) button.disabled = false;
  if (!done) return;
  form.closest("details.menu")?.removeAttribute("open");
  const here = location.pathname + location.search;
  const event = new CustomEvent("acted", { bubbles: true, cancelable: true, detail: { name, to: done.to } });
  // A listener that shows the outcome in place cancels the event; otherwise the page is loaded anew.
  if (!form.dispatchEvent(event)) toast(say(`did-${name}`), { action });
  else {
    toastLater(say(`did-${name}`), action);
    if (done.to === here) location.reload();
    else location.assign(done.to);
  }
}

export function listenForActions() {
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-act]")) return;
    event.preventDefault();
    act(event.target);
  });
}

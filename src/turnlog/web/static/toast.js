// Short messages at the edge of the page about what was done. One with an action stays longer, and any of them stays
// while the pointer or the focus is on it. A toast that was ordered before a page is left is shown on the next page.

import { $, make, say } from "./dom.js";

const SHOWN_MS = 5000;
const WITH_ACTION_MS = 10000;
const LATER = "turnlog.toast";

// `action`: {label, run} with a function, or {label, post, fields} with the address of a form.
export function toast(text, { bad = false, action } = {}) {
  const close = make("button", { type: "button", class: "toast-close", "aria-label": say("close"), text: "×" });
  const item = make("div", { class: bad ? "toast bad" : "toast" }, make("span", { text, dir: "auto" }));
  if (action) {
    const button = make("button", { type: "button", class: "button small", text: action.label });
    button.addEventListener("click", () => {
      item.remove();
      if (action.post) submit(action.post, action.fields);
      else action.run();
    });
    item.append(button);
  }
  item.append(close);
  close.addEventListener("click", () => item.remove());
  $(bad ? "alerts" : "toasts").append(item);
  const end = () => (item.matches(":hover, :focus-within") ? setTimeout(end, 1000) : item.remove());
  setTimeout(end, action || bad ? WITH_ACTION_MS : SHOWN_MS);
  return item;
}

export function toastLater(text, action) {
  sessionStorage.setItem(LATER, JSON.stringify({ text, action }));
}

function submit(address, fields = {}) {
  const form = make("form", { method: "post", action: address });
  for (const [name, value] of Object.entries(fields)) form.append(make("input", { type: "hidden", name, value }));
  document.body.append(form);
  form.submit();
}

export function showLater() {
  const kept = sessionStorage.getItem(LATER);
  sessionStorage.removeItem(LATER);
  if (!kept) return;
  const { text, action } = JSON.parse(kept);
  toast(text, { action });
}

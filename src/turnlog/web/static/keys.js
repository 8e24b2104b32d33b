// The keys that work everywhere, and the sheet that lists them.

import { $ } from "./dom.js";

export function showKeys() {
  $("keys")?.showModal();
}

function isTyping(element) {
  return element.matches?.("input, textarea, select, [contenteditable]");
}

export function listenForKeys() {
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-keys]")) showKeys();
    if (event.target === $("keys")) $("keys").close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.altKey && event.code === "KeyN" && !event.ctrlKey && !event.metaKey) {
      const agent = document.querySelector("main.chat")?.dataset.agent;
      event.preventDefault();
      location.assign(agent ? `/chat/${agent}` : "/");
    }
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") {
      event.preventDefault();
      showKeys();
    } else if (event.key === "/" && $("message")) {
      event.preventDefault();
      $("message").focus();
    } else if (event.key === "Escape" && location.hash === "#sessions") location.hash = "";
  });
}

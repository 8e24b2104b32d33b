// What is on its way: after a moment a skeleton stands where the answer will be. A part that htmx fetches is replaced by
// its answer; a page that is left for another one is hidden, and comes back if the browser shows it again.

import { copyOf } from "./dom.js";

const AFTER_MS = 150;
const waiting = new Map();

function begin(place) {
  end(place);
  place.setAttribute("aria-busy", "true");
  waiting.set(place, setTimeout(() => {
    place.classList.add("loading");
    if (place.id === "drawer") place.classList.add("open");
    place.prepend(copyOf("tpl-skeleton"));
  }, AFTER_MS));
}

function end(place) {
  clearTimeout(waiting.get(place));
  waiting.delete(place);
  place.removeAttribute("aria-busy");
  place.classList.remove("loading");
  place.querySelector(":scope > .skeleton")?.remove();
  if (place.id === "drawer" && !place.querySelector(".drawer-head")) place.classList.remove("open");
}

function leave() {
  const main = document.querySelector("main.operating-page");
  if (!main) return;
  main.setAttribute("aria-busy", "true");
  waiting.set(main, setTimeout(() => {
    main.classList.add("leaving");
    (main.querySelector("nav.operating") ?? main).after(copyOf("tpl-skeleton"));
  }, AFTER_MS));
}

function come() {
  for (const main of document.querySelectorAll("main.operating-page[aria-busy]")) {
    clearTimeout(waiting.get(main));
    main.removeAttribute("aria-busy");
    main.classList.remove("leaving");
    main.querySelector(".skeleton")?.remove();
  }
}

export function listenForLoading() {
  document.addEventListener("htmx:before:request", (event) => begin(event.detail.ctx.target));
  document.addEventListener("htmx:finally:request", (event) => end(event.detail.ctx.target));
  document.addEventListener("click", (event) => {
    const plain = !event.defaultPrevented && !event.button && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    if (plain && event.target.closest("nav.operating a")) leave();
  });
  document.addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.matches("main.operating-page form.filters:not([hx-get])")) leave();
  });
  window.addEventListener("pageshow", come);
}

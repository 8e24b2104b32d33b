// Search: Ctrl K or ⌘ K opens it on every page. The list is the server's; arrow keys choose, Enter opens.

import { $ } from "./dom.js";

export function openSearch(words = "") {
  const dialog = $("search");
  if (!dialog) return $("search-words")?.focus();
  if (!dialog.open) dialog.showModal();
  const box = $("search-words");
  if (words) box.value = words;
  box.select();
  const within = dialog.querySelector(".within");
  const session = document.querySelector("main.chat")?.dataset.session ?? "";
  within.hidden = !session;
  within.querySelector("input").value = session;
  // htmx looks at a new page in a timeout of its own, which is in the queue before this one.
  setTimeout(() => $("search-form").dispatchEvent(new Event("search-opened")));
}

// Browsers take the first Escape in a search field to empty it.
function choose(event) {
  if (event.key === "Escape" && $("search")) {
    event.preventDefault();
    return $("search").close();
  }
  const links = [...document.querySelectorAll("#found [data-found]")];
  if (!["ArrowDown", "ArrowUp", "Enter"].includes(event.key) || !links.length || event.isComposing) return;
  const at = links.findIndex((link) => link.classList.contains("chosen"));
  event.preventDefault();
  if (event.key === "Enter") return links[Math.max(0, at)].click();
  const next = links.at((at + (event.key === "ArrowDown" ? 1 : -1)) % links.length);
  links[at]?.classList.remove("chosen");
  next.classList.add("chosen");
  next.id ||= `found-${links.indexOf(next)}`;
  next.scrollIntoView({ block: "nearest" });
  $("search-words").setAttribute("aria-activedescendant", next.id);
}

export function listenForSearch() {
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.metaKey || event.ctrlKey) && !event.shiftKey) {
      event.preventDefault();
      openSearch();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-search]")) {
      event.preventDefault();
      openSearch();
    }
    if (event.target === $("search")) $("search").close();
    const found = event.target.closest("[data-found]");
    // The same address again, at most with another #, would not load the page.
    if (found && found.pathname + found.search === location.pathname + location.search) {
      event.preventDefault();
      location.hash = found.hash;
      location.reload();
    }
  });
  $("search-words")?.addEventListener("keydown", choose);
}

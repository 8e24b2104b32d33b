// The drawer next to a table: it shows the chosen row, takes the focus, and gives it back when it is closed.

import { $ } from "./dom.js";
import { openMenu } from "./menus.js";
import { attend } from "./tails.js";

export function drawerOpened() {
  const drawer = $("drawer");
  if (!drawer?.querySelector(".drawer-head")) return;
  drawer.classList.add("open");
  const scroll = drawer.querySelector(".drawer-scroll");
  if (scroll && !scroll.dataset.seen) {
    scroll.dataset.seen = "1";
    scroll.scrollTop = scroll.scrollHeight;
    drawer.querySelector("[data-close-drawer]")?.focus({ preventScroll: true });
  }
}

function closeDrawer() {
  const drawer = $("drawer");
  drawer.classList.remove("open");
  drawer.querySelector(".drawer-scroll")?.remove();
  const row = document.querySelector("tr.chosen [data-row]");
  document.querySelector("tr.chosen")?.classList.remove("chosen");
  row?.focus();
  attend();
}

export function listenForDrawer() {
  document.addEventListener("click", (event) => {
    const row = event.target.closest("[data-row]");
    if (row) {
      document.querySelector("tr.chosen")?.classList.remove("chosen");
      row.closest("tr").classList.add("chosen");
    }
    if (event.target.closest("[data-close-drawer]") && document.querySelector(".chats-list")) {
      event.preventDefault();
      closeDrawer();
    }
  });
  document.addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && !event.defaultPrevented && !openMenu();
    if (open && $("drawer")?.classList.contains("open") && document.querySelector(".chats-list")) closeDrawer();
  });
}

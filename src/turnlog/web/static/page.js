// Starts what the page in front of us needs. Each module says what it does.

import { listenForActions } from "./actions.js";
import { $, localise } from "./dom.js";
import { drawerOpened, listenForDrawer } from "./drawer.js";
import { listenForMenus, openMenu } from "./menus.js";
import { listenForPreferences } from "./preferences.js";
import { attend } from "./tails.js";
import { showLater } from "./toast.js";

document.documentElement.classList.add("scripted");

listenForMenus();
listenForDrawer();
listenForActions();
listenForPreferences();

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !openMenu() && location.hash === "#sessions") location.hash = "";
  if (event.key === "k" && (event.metaKey || event.ctrlKey)) {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      if (search.closest("#sessions")) location.hash = "#sessions";
      search.focus();
    }
  }
});

document.querySelector("form[data-at-once]")?.requestSubmit();

new MutationObserver((changes) => {
  attend();
  drawerOpened();
  for (const change of changes) for (const node of change.addedNodes) if (node.querySelectorAll) localise(node);
}).observe(document.body, { childList: true, subtree: true });

localise();
attend();
drawerOpened();
showLater();
const chat = document.querySelector("main.chat");
if (chat) import("./chat.js").then(({ Chat }) => new Chat(chat));

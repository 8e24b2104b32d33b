// Starts what the page in front of us needs. Each module says what it does.

import { listenForActions } from "./actions.js";
import { localise } from "./dom.js";
import { drawerOpened, listenForDrawer } from "./drawer.js";
import { listenForKeys } from "./keys.js";
import { listenForLoading } from "./loading.js";
import { listenForMenus } from "./menus.js";
import { listenForPreferences } from "./preferences.js";
import { listenForSearch } from "./search.js";
import { attend } from "./tails.js";
import { showLater } from "./toast.js";

document.documentElement.classList.add("scripted");

listenForMenus();
listenForDrawer();
listenForActions();
listenForPreferences();
listenForSearch();
listenForKeys();
listenForLoading();

document.querySelector("nav.operating [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
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
const main = document.querySelector("main.chat");
if (main) {
  const [{ Chat }, { connect }] = await Promise.all([import("./chat.js"), import("./feed.js")]);
  new Chat(main);
  connect();
}

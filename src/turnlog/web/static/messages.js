// What can be done with a message: copy it or a piece of its code, walk through the messages with the keyboard, and use
// a toolbar with the arrow keys. A summary loads its figures when it is opened.

import { $, ask, part, say } from "./dom.js";
import { toast } from "./toast.js";

const LETTERS = { c: "[data-copy]", e: "[data-edit]", r: "[data-act=regenerate]", f: "[data-act=fork]", p: "[data-act=pin], [data-act=unpin]" };

// `text` may be a promise: browsers allow copying only at once, and let what is copied come later.
export async function copy(text) {
  try {
    if (navigator.clipboard?.write && window.ClipboardItem) {
      const blob = Promise.resolve(text).then((words) => new Blob([words], { type: "text/plain" }));
      await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
    } else copyBySelection(await text);
    toast(say("copied"));
  } catch {
    toast(say("copy-failed"), { bad: true });
  }
}

// Where the connection is not secure, there is no other way.
function copyBySelection(text) {
  const box = document.createElement("textarea");
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  if (!done) throw new Error("copy");
}

export async function wordsOf(address) {
  return (await ask(address)).json();
}

function clicked(event) {
  const code = event.target.closest("[data-copy-code]");
  if (code) return copy(code.closest(".code").querySelector("code").textContent);
  const message = event.target.closest("[data-copy]");
  if (message) copy(wordsOf(message.dataset.copy).then((found) => found.text));
}

function inToolbar(event) {
  const bar = event.target.closest?.("[role=toolbar]");
  if (!bar || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
  const buttons = [...bar.querySelectorAll("button")].filter((one) => one.offsetParent);
  const at = buttons.indexOf(document.activeElement);
  const step = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: buttons.length - 1 }[event.key];
  buttons[(step + buttons.length) % buttons.length]?.focus();
  event.preventDefault();
}

// One stop of the Tab key in each toolbar.
function rove(root = document) {
  for (const bar of root.querySelectorAll("[role=toolbar]"))
    [...bar.querySelectorAll("button")].forEach((button, n) => (button.tabIndex = n ? -1 : 0));
}

function walk(chat, event) {
  if (!event.altKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
  const messages = [...chat.scroll.querySelectorAll(".msg[tabindex]")];
  const at = messages.indexOf(document.activeElement.closest?.(".msg"));
  const next = at < 0 ? messages.at(-1) : messages[at + (event.key === "ArrowUp" ? -1 : 1)];
  if (next) {
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  } else if (event.key === "ArrowDown") $("message")?.focus();
  event.preventDefault();
}

function letter(event) {
  const message = document.activeElement.matches?.(".msg") && document.activeElement;
  const wanted = message && !event.ctrlKey && !event.metaKey && !event.altKey && LETTERS[event.key.toLowerCase()];
  const found = wanted && message.querySelector(wanted);
  if (!found) return;
  event.preventDefault();
  if (found.matches("form")) found.requestSubmit();
  else found.click();
}

async function opened(event) {
  const details = event.target;
  if (!details.open || !details.dataset?.load) return;
  const fresh = await part(details.dataset.load).catch(() => null);
  const found = fresh?.body.firstElementChild;
  if (found) details.querySelector("[data-loaded]")?.replaceWith(document.adoptNode(found));
  delete details.dataset.load;
}

// Marks the matches of a search in the messages that are shown, without changing their HTML.
function highlight() {
  const texts = JSON.parse($("find")?.dataset.marks ?? "[]").map((text) => text.toLowerCase()).filter(Boolean);
  if (!texts.length || !CSS.highlights) return;
  const ranges = [];
  const walker = document.createTreeWalker($("scroll"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement.closest(".body, .call, .thinking")) continue;
    const words = node.data.toLowerCase();
    for (const text of texts) {
      for (let at = words.indexOf(text); at >= 0 && at + text.length <= node.length; at = words.indexOf(text, at + text.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + text.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

export function listenForMessages(chat) {
  document.addEventListener("click", clicked);
  document.addEventListener("keydown", (event) => {
    inToolbar(event);
    walk(chat, event);
    letter(event);
    if (event.key === "F3" && $("find")) {
      event.preventDefault();
      $(event.shiftKey ? "find-previous" : "find-next")?.click();
    }
  });
  document.addEventListener("toggle", opened, true);
  new MutationObserver(() => {
    rove(chat.scroll);
    highlight();
  }).observe(chat.scroll, { childList: true, subtree: true });
  rove(chat.scroll);
  highlight();
}

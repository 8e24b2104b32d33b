// Live tails of a session (data-tail: its events) and of a channel's log (data-poll: asked again every few seconds).

import { refresh } from "./dom.js";

const tails = new Map();

export function attend() {
  for (const [element, end] of tails) {
    if (!element.isConnected) {
      end();
      tails.delete(element);
    }
  }
  for (const element of document.querySelectorAll("[data-tail], [data-poll]")) {
    if (!tails.has(element)) tails.set(element, element.dataset.tail ? tail(element) : poll(element));
  }
}

function tail(element) {
  const source = new EventSource(element.dataset.tail);
  let waiting = 0;
  source.onmessage = () => {
    waiting ||= setTimeout(() => {
      waiting = 0;
      follow(element, element.dataset.again, element.id || "drawer-log");
    }, 200);
  };
  return () => source.close();
}

function poll(element) {
  const timer = setInterval(() => {
    if (!document.hidden) follow(element, element.dataset.poll, "drawer-log");
  }, 3000);
  return () => clearInterval(timer);
}

async function follow(element, url, id) {
  const near = element.scrollHeight - element.scrollTop - element.clientHeight < 160;
  await refresh(url, id);
  if (near && element.classList.contains("drawer-scroll")) element.scrollTop = element.scrollHeight;
}

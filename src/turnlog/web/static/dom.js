// What every module of the page uses: elements, texts, local times, and parts of a page that the server renders again.
// No module makes HTML out of text: words go into textContent, and HTML comes sanitised from the server.

export const $ = (id) => document.getElementById(id);

// A text of the page in its language, from part_texts.html; `%` stands for the value.
export function say(name, value = "") {
  return ($("texts").getAttribute(`data-${name}`) ?? name).replace("%", () => String(value));
}

// What went wrong and what helps, as two sentences: the first one comes without its full stop.
export function explain(what, hint) {
  const isChinese = document.documentElement.lang.startsWith("zh");
  const stop = hint && /[^.!?…。！？]$/.test(what) ? (isChinese ? "。" : ".") : "";
  return [`${what}${stop}`, hint].filter(Boolean).join(isChinese ? "" : " ");
}

// Asks the server; throws an error whose message says why it refused, or that it cannot be reached.
export async function ask(url, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  const answer = await fetch(url, { ...options, headers }).catch(() => null);
  if (!answer) throw new Error(say("unreachable"));
  if (answer.status === 401) location.assign("/signin");
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Error(explain(problem.detail ?? say("unreachable"), problem.hint));
}

export function make(tag, { text, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

export function copyOf(template) {
  return $(template).content.firstElementChild.cloneNode(true);
}

// Times as they are here, and the labels of buttons that come with code.
export function localise(root = document) {
  for (const button of root.querySelectorAll("[data-copy-code]:empty")) button.textContent = say("copy");
  const language = document.documentElement.lang;
  const now = new Date();
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const year = at.getFullYear() === now.getFullYear() ? undefined : "numeric";
    element.title = at.toLocaleString(language);
    element.textContent = at.toDateString() === now.toDateString()
      ? at.toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit" })
      : at.toLocaleDateString(language, { year, month: "short", day: "numeric" });
  }
}

// Takes over what is new or has changed, by id and data-rev, and leaves the rest alone: what is open stays open.
export function patch(old, fresh) {
  const kept = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  const wanted = [...fresh.children].map((child) => {
    const known = child.id && kept.get(child.id);
    return known && known.dataset.rev && known.dataset.rev === child.dataset.rev ? known : document.adoptNode(child);
  });
  const changed = wanted.length !== old.children.length || wanted.some((child, n) => child !== old.children[n]);
  if (changed) {
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceChildren(...wanted);
    window.htmx?.process(old);
    localise(old);
    if (focused && document.activeElement === document.body) $(focused)?.focus({ preventScroll: true });
  }
  return changed;
}

// A part of a page as a document. A sign-in that has ended leads to its page.
export async function part(url) {
  const response = await fetch(url, { headers: { "HX-Request": "true", Accept: "text/html" } });
  if (response.redirected && new URL(response.url).pathname === "/signin") location.assign("/signin");
  if (response.headers.get("hx-redirect")) location.assign(response.headers.get("hx-redirect"));
  return response.ok ? new DOMParser().parseFromString(await response.text(), "text/html") : null;
}

export async function refresh(url, ...ids) {
  const fresh = await part(url);
  for (const id of fresh ? ids : []) {
    const [old, next] = [$(id), fresh.getElementById(id)];
    if (old && next) patch(old, next);
  }
  return fresh;
}

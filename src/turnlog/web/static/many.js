// The boxes of the table of sessions: how many are chosen, choosing all, and what is done with them, which can be undone.

import { post } from "./actions.js";
import { $, localise, part } from "./dom.js";
import { toast } from "./toast.js";

const form = $("many");
const boxes = () => [...document.querySelectorAll('#rows input[name="id"]')];

function count() {
  const [all, chosen] = [boxes(), boxes().filter((box) => box.checked).length];
  $("many-bar")?.classList.toggle("ready", chosen > 0);
  if ($("many-count")) $("many-count").textContent = chosen ? form.dataset.chosen.replace("%", chosen) : "";
  const every = $("choose-all");
  if (!every) return;
  every.checked = chosen > 0 && chosen === all.length;
  every.indeterminate = chosen > 0 && chosen < all.length;
}

async function renew() {
  const fresh = await part(location.pathname + location.search);
  if (!fresh) return;
  for (const one of fresh.querySelectorAll("[hx-swap-oob]")) one.remove();
  $("rows").replaceChildren(...document.adoptNode(fresh.body).childNodes);
  window.htmx?.process($("rows"));
  localise($("rows"));
  count();
}

async function change(fields) {
  const done = await post(form.action, fields);
  if (!done) return;
  const said = [form.dataset[done.did].replace("%", done.done)];
  if (done.failed) said.push(form.dataset.failed.replace("%", done.failed));
  const back = done.did === "restore" ? null : [["do", "restore"], ...done.undo.map((id) => ["id", id])];
  toast(said.join(" · "), { action: back && done.done ? { label: form.dataset.undo, run: () => change(back) } : undefined });
  await renew();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  change(new FormData(form, event.submitter));
});
document.addEventListener("change", (event) => {
  if (event.target.id === "choose-all") for (const box of boxes()) box.checked = event.target.checked;
  if (event.target.closest("#rows")) count();
});
document.addEventListener("htmx:after:swap", count);
count();

// Files that go with a message: pictures as pictures, text files as fenced text in the message. What is too large, too
// many or unreadable is refused when it is added, with the limit.

import { $, make, say } from "./dom.js";
import { toast } from "./toast.js";

const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const BASE64 = 4 / 3;

export function sizeOf(bytes) {
  const units = [["MB", 1e6], ["kB", 1e3]];
  const [unit, size] = units.find(([, one]) => bytes >= one) ?? ["B", 1];
  return `${(bytes / size).toLocaleString(document.documentElement.lang, { maximumFractionDigits: 1 })} ${unit}`;
}

function dataOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

// A fence that is longer than any in the text.
function fenced(name, text) {
  const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map((found) => found[0].length));
  const fence = "`".repeat(longest + 1);
  const language = /\.(\w{1,12})$/.exec(name)?.[1] ?? "";
  return `${name}\n${fence}${language}\n${text.replace(/\n$/, "")}\n${fence}`;
}

export class Attachments {
  constructor(form, changed) {
    this.list = $("attached");
    this.changed = changed;
    this.limits = { images: Number(form.dataset.images), text: Number(form.dataset.textBytes), body: Number(form.dataset.bodyBytes) };
    this.items = [];
    $("files").addEventListener("change", (event) => {
      this.add(event.target.files);
      event.target.value = "";
    });
    const drop = document.querySelector("main.chat");
    drop.addEventListener("dragover", (event) => this.dragged(event, drop, true));
    drop.addEventListener("dragleave", (event) => this.dragged(event, drop, false));
    drop.addEventListener("drop", (event) => {
      this.dragged(event, drop, false);
      this.add(event.dataTransfer.files);
    });
    $("message").addEventListener("paste", (event) => {
      if (!event.clipboardData.files.length) return;
      event.preventDefault();
      this.add(event.clipboardData.files);
    });
    drop.dataset.drop = say("drop-here");
  }

  dragged(event, drop, isOver) {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    drop.classList.toggle("dropping", isOver);
  }

  get images() {
    return this.items.filter((item) => item.data).map((item) => item.data);
  }

  get texts() {
    return this.items.filter((item) => item.text).map((item) => item.text);
  }

  async add(files) {
    // A copy: the list of a field empties with the field.
    for (const file of [...files]) {
      if (PICTURES.includes(file.type)) await this.addPicture(file);
      else await this.addText(file);
    }
  }

  async addPicture(file) {
    if (this.images.length >= this.limits.images) return toast(say("too-many", this.limits.images), { bad: true });
    const room = this.limits.body / BASE64 - this.images.reduce((sum, data) => sum + data.length / BASE64, 0);
    const most = Math.floor(room - this.limits.text);
    if (file.size > most) return toast(`${file.name}: ${say("too-large", sizeOf(Math.max(0, most)))}`, { bad: true });
    this.put({ name: file.name, size: file.size, data: await dataOf(file) });
  }

  async addText(file) {
    const most = this.limits.text - this.texts.reduce((sum, text) => sum + text.length, 0);
    if (file.size > most) return toast(`${file.name}: ${say("too-large", sizeOf(most))}`, { bad: true });
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError("binary");
      this.put({ name: file.name, size: file.size, text: fenced(file.name, text) });
    } catch {
      toast(say("not-readable", file.name), { bad: true });
    }
  }

  put(item) {
    const remove = make("button", { type: "button", class: "toast-close", text: "×", "aria-label": say("attach-remove", item.name) });
    item.element = make("li", {}, make("bdi", { text: item.name }), make("span", { class: "meta", text: sizeOf(item.size) }), remove);
    if (item.data) item.element.prepend(make("img", { src: item.data, alt: "" }));
    remove.addEventListener("click", () => {
      this.items = this.items.filter((one) => one !== item);
      item.element.remove();
      this.changed();
      $("message").focus();
    });
    this.items.push(item);
    this.list.append(item.element);
    this.changed();
  }

  clear() {
    for (const item of this.items) item.element.remove();
    this.items = [];
  }
}

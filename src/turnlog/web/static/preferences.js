// Colours change without a reload, so that nothing that was typed is lost.

export function listenForPreferences() {
  document.querySelector("form.prefer")?.addEventListener("submit", (event) => {
    event.target.elements.next.value = location.pathname + location.search;
    if (event.submitter?.name !== "theme") return;
    event.preventDefault();
    document.documentElement.dataset.theme = event.submitter.value;
    const body = new URLSearchParams({ theme: event.submitter.value });
    fetch(event.target.action, { method: "POST", body, redirect: "manual" });
    document.querySelector(event.submitter.value === "dark" ? ".to-light" : ".to-dark").focus();
  });
}

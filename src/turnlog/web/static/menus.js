// Menus are <details class="menu">: a click elsewhere and Escape close them.

export function openMenu() {
  return document.querySelector("details.menu[open]");
}

export function listenForMenus() {
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && openMenu();
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
    event.preventDefault();
  });
}

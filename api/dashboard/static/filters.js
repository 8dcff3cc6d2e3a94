// Saved filters of a list, kept by this browser for each tenant. Each is a link.
"use strict";
(() => {
  const menu = document.getElementById("saved");
  if (!menu) return;
  const list = menu.querySelector("ul");
  const form = menu.querySelector("form");
  const field = form.querySelector("input");
  const key = `millrace.filters.${menu.dataset.owner}`;

  function read() {
    try {
      return JSON.parse(localStorage.getItem(key)) || {};
    } catch {
      return {};
    }
  }

  const own = () => read()[location.pathname] || [];

  function write(filters) {
    localStorage.setItem(key, JSON.stringify({ ...read(), [location.pathname]: filters }));
    show();
  }

  // Without the position in the list, and without fields that were left empty.
  function query() {
    const given = [...new URLSearchParams(location.search)].filter(([name, value]) => value && name !== "after");
    return new URLSearchParams(given).toString();
  }

  function row({ name, query: kept }) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.textContent = name;
    link.href = kept ? `?${kept}` : location.pathname;
    if (kept === query()) link.setAttribute("aria-current", "true");
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "\u2715";
    remove.setAttribute("aria-label", `Delete the saved filter ${name}`);
    remove.addEventListener("click", () => {
      write(own().filter((one) => one.name !== name));
      menu.querySelector("summary").focus();
    });
    item.append(link, remove);
    return item;
  }

  function show() {
    const filters = own();
    list.replaceChildren(...filters.map(row));
    list.hidden = !filters.length;
    menu.querySelector("summary b").textContent = filters.length || "";
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (!name) return;
    write([...own().filter((one) => one.name !== name), { name, query: query() }]);
    field.value = "";
    list.querySelector("li:last-child a").focus();
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  addEventListener("storage", show);
  menu.hidden = false;
  show();
})();

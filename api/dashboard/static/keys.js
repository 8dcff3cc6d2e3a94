// Keyboard shortcuts. They can be turned off: speech input and slips would set them off, too.
"use strict";
(() => {
  const dialog = document.getElementById("shortcuts");
  const help = document.getElementById("help");
  if (!dialog || !dialog.showModal) return;
  const on = document.getElementById("shortcuts-on");
  on.checked = localStorage.getItem("millrace.keys") !== "0";
  on.addEventListener("change", () => localStorage.setItem("millrace.keys", on.checked ? "1" : "0"));
  help.hidden = false;
  help.addEventListener("click", () => dialog.showModal());

  const shown = (element) => element.getClientRects().length > 0;
  const first = (selector) => [...document.querySelectorAll(selector)].find(shown);

  function search() {
    const field = first("main input[type=search]") || first("main [role=search] input, main .find input");
    if (field) field.focus();
  }

  // The first link of a row has the focus, so that Enter opens it.
  function move(step) {
    const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a[href]") && shown(row));
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
    if (!next) return;
    next.querySelector("a[href]").focus();
    next.scrollIntoView({ block: "nearest" });
  }

  const deeds = {
    "/": search,
    "?": () => dialog.showModal(),
    j: () => move(1),
    k: () => move(-1),
  };
  const writes = (element) => element.isContentEditable || element.matches("input:not([type=checkbox]), textarea, select");

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (writes(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const deed = on.checked && deeds[event.key];
    if (!deed) return;
    event.preventDefault();
    deed();
  });
})();

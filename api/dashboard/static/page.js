// Theme, times in the viewer's zone, and buttons that copy.
"use strict";
(() => {
  // -- theme: the server reads the cookie, so pages arrive in the right colours

  const theme = document.getElementById("theme");
  const dark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.hidden = false;
  theme.title = "Switch between light and dark";
  name();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  theme.addEventListener("click", () => {
    const chosen = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    document.cookie = `millrace_theme=${chosen}; path=/dashboard; max-age=31536000; samesite=strict`;
    name();
  });

  // -- times: pages come with UTC; a pointer shows the exact time in UTC

  const two = (number) => String(number).padStart(2, "0");

  function local(at) {
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }

  function localize(part) {
    for (const time of part.querySelectorAll("time.moment")) {
      const text = local(new Date(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  localize(document);
  document.addEventListener("millrace:fresh", (event) => localize(event.detail));
  const zone = document.getElementById("zone");
  if (zone) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;

  // -- times that are typed: in the viewer's zone, and sent in UTC

  const typed = document.querySelectorAll("input[data-utc]");
  for (const input of typed) {
    const given = input.defaultValue;
    if (given) input.value = local(new Date(`${given}Z`)).replace(" ", "T").slice(0, given.length);
  }
  for (const word of document.querySelectorAll("[data-zone]")) word.textContent = "";
  document.addEventListener("formdata", (event) => {
    for (const input of typed) {
      if (input.form !== event.target || !input.value) continue;
      const sent = new Date(input.value).toISOString().slice(0, input.value.length);
      event.formData.set(input.name, sent);
    }
  });

  // -- buttons that copy: shown where the browser lets a page write to the clipboard

  if (navigator.clipboard) {
    document.documentElement.dataset.copies = "";
    document.addEventListener("click", async (event) => {
      const button = event.target.closest("[data-copy]");
      if (!button) return;
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
})();

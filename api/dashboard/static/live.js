// Live updates of pages.
"use strict";
(() => {
  const pause = document.getElementById("pause");
  const state = document.getElementById("live-state");
  const parts = document.querySelectorAll("[data-live]");

  // -- DOM update: keeps focus, scroll position, selection and open details

  const key = (node) => (node.nodeType === 1 && (node.id || node.dataset.key)) || null;

  const sameKind = (a, b) =>
    a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);

  function attributes(old, fresh) {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) {
        old.removeAttribute(name);
      }
    }
    for (const { name, value } of fresh.attributes) {
      const kept = name === "open" && old.nodeName === "DETAILS";
      if (!kept && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  }

  function become(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.matches("input, select, textarea")) {
      if (old === document.activeElement || old.type === "checkbox") return;
    }
    attributes(old, fresh);
    children(old, fresh);
  }

  function children(old, fresh) {
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      let found = at;
      if (key(next)) {
        while (found && !sameKind(found, next)) found = found.nextSibling;
      }
      if (found && sameKind(found, next)) {
        if (found !== at) old.insertBefore(found, at);
        else at = at.nextSibling;
        become(found, next);
      } else {
        old.insertBefore(next, at);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  function show(news) {
    for (const part of parts) {
      const html = news[`live_${part.dataset.live}`];
      if (html === undefined) continue;
      const fresh = document.createElement("template");
      fresh.innerHTML = html;
      document.dispatchEvent(new CustomEvent("millrace:fresh", { detail: fresh.content }));
      children(part, fresh.content);
    }
  }

  // -- stream: open while the page is visible and not paused

  if (!pause || !parts.length || !window.EventSource) return;
  let source = null;
  let later = 0;
  let paused = localStorage.getItem("millrace.paused") === "1";

  const tell = (word, kind) => {
    state.textContent = word;
    state.dataset.kind = kind;
  };

  function stop() {
    clearTimeout(later);
    if (source) source.close();
    source = null;
  }

  function go() {
    stop();
    pause.textContent = paused ? "Start updates" : "Stop updates";
    if (paused) return tell("Stopped", "stopped");
    if (document.hidden) return;
    source = new EventSource(location.pathname + location.search);
    source.addEventListener("open", () => tell("Live", "live"));
    source.addEventListener("parts", (event) => show(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      tell("Reconnecting", "away");
      if (source.readyState === EventSource.CLOSED) refused();
    });
  }

  // If the session has ended, reload to the sign-in; else retry later.
  async function refused() {
    stop();
    later = setTimeout(go, 10000);
    const answer = await fetch(location.href).catch(() => null);
    if (answer && answer.redirected) location.assign(answer.url);
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    localStorage.setItem("millrace.paused", paused ? "1" : "0");
    go();
  });
  document.addEventListener("visibilitychange", go);
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) go(); });
  later = setTimeout(go, paused ? 0 : 2000); // a page that has just come is fresh
})();

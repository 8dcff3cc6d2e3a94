// The page that tries a model: its form is sent by fetch, and answers appear as they come.
"use strict";
(() => {
  const form = document.getElementById("trial");
  const field = (id) => document.getElementById(id);
  const [failure, timing, output, waiting, stop] =
    ["failure", "timing", "output", "waiting", "stop"].map(field);
  const conversation = field("conversation");
  let running = null;

  const shown = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(1)} ms`);

  function fail(problem) {
    const box = document.createElement("div");
    box.className = "problem";
    box.setAttribute("role", "alert");
    box.textContent = problem.detail || String(problem);
    failure.replaceChildren(box);
  }

  function tell(call, measured) {
    const figures = { ...call.timing, ...measured };
    for (const place of timing.querySelectorAll("[data-timing]")) {
      const value = figures[place.dataset.timing];
      const isTime = place.dataset.timing.endsWith("_ms");
      place.textContent = value === undefined || value === null ? "–" : isTime ? shown(value) : value;
    }
    for (const one of timing.querySelectorAll("[data-streamed]")) one.hidden = !measured;
    const link = field("call");
    link.href = `/dashboard/calls/${encodeURIComponent(call.id)}`;
    link.firstElementChild.textContent = call.id;
    timing.hidden = false;
  }

  // -- conversations

  function say(role, text) {
    const [line, who, what] = ["li", "b", "span"].map((name) => document.createElement(name));
    line.className = role;
    who.textContent = role;
    what.textContent = text;
    line.append(who, " ", what);
    conversation.append(line);
    return what;
  }

  function remember(...messages) {
    const history = form.elements.history;
    history.value = JSON.stringify([...JSON.parse(history.value), ...messages]);
  }

  // -- events: blocks of lines with an empty line behind each

  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n");
        const part = (name) => lines.filter((line) => line.startsWith(`${name}: `))
          .map((line) => line.slice(name.length + 2)).join("\n");
        if (part("data")) yield [part("event"), JSON.parse(part("data"))];
      }
    }
  }

  async function read(answer, message, since) {
    say("user", message);
    const place = say("assistant", "");
    form.elements.message.value = "";
    let [first, last, tokens] = [0, 0, 0];
    try {
      for await (const [name, data] of events(answer.body)) {
        if (name === "error") return fail(data);
        if (name === "tokens") {
          last = performance.now();
          first = first || last;
          tokens += data.tokens.length;
          place.textContent += data.text;
        } else if (name === "done") {
          const speed = tokens > 1 ? ((tokens - 1) * 1000) / (last - first) : 0;
          tell(data, { first_token_ms: first - since, tokens_s: speed ? speed.toFixed(1) : "–" });
        }
      }
    } finally {
      remember({ role: "user", content: message }, { role: "assistant", content: place.textContent });
    }
  }

  function show(call) {
    tell(call);
    const text = typeof call.output === "string" ? call.output : JSON.stringify(call.output, null, 2);
    output.textContent = text.slice(0, 20000);
    output.hidden = false;
  }

  // -- requests

  async function send(fields, signal) {
    const answer = await fetch(form.action, {
      method: "POST", body: fields, signal, headers: { Accept: "application/json" },
    });
    if (answer.redirected) location.assign(answer.url);  // to the sign-in
    if (answer.ok) return answer;
    const isProblem = (answer.headers.get("content-type") || "").includes("json");
    throw isProblem ? await answer.json() : new Error(`The page is out of date (${answer.status}): reload it.`);
  }

  async function call(fields) {
    const streams = "streams" in form.dataset;
    if (streams) fields.set("stream", "1");
    running = new AbortController();
    stop.hidden = false;
    waiting.textContent = "Waiting…";
    const since = performance.now();
    const answer = await send(fields, running.signal);
    if (streams) await read(answer, fields.get("message"), since);
    else show(await answer.json());
  }

  async function code(fields) {
    const found = await (await send(fields)).json();
    for (const place of document.querySelectorAll("[data-code]")) {
      place.textContent = found[place.dataset.code];
    }
    field("code").hidden = false;
  }

  form.addEventListener("submit", async (event) => {
    const asksForCode = event.submitter?.name === "show";
    if (!("streams" in form.dataset) && conversation && !asksForCode) return;  // the page again
    event.preventDefault();
    if (running) return;
    const fields = new FormData(form, event.submitter);
    failure.replaceChildren();
    try {
      await (asksForCode ? code(fields) : call(fields));
      waiting.textContent = "";
    } catch (error) {
      waiting.textContent = error.name === "AbortError" ? "Stopped." : "";
      if (error.name !== "AbortError") fail(error.detail ? error : { detail: error.message });
    } finally {
      running = null;
      stop.hidden = true;
    }
  });
  stop.addEventListener("click", () => running?.abort());
})();

// Forms: the example input of the chosen model alone.
"use strict";
for (const choice of document.querySelectorAll("select[data-examples]")) {
  const list = document.getElementById(choice.dataset.examples);
  const show = () => {
    const name = choice.value.split("@")[0];
    for (const one of list.querySelectorAll("[data-model]")) {
      one.hidden = name !== "" && one.dataset.model !== name;
    }
    list.open = list.open || name !== "";
  };
  choice.addEventListener("change", show);
  show();
}

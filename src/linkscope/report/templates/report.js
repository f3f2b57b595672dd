// All of the page works without this: it only filters the paths, opens several at once, and opens them for printing.
"use strict";
const panels = [...document.querySelectorAll("details.panel")];
const open = (all, wanted) => all.forEach((one) => { one.open = wanted; });
document.querySelector(".tools").hidden = false;
document.getElementById("open").addEventListener("click", () => open(panels, true));
document.getElementById("close").addEventListener("click", () => open(panels, false));
document.getElementById("filter").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  panels.forEach((panel) => {
    const name = panel.querySelector("h3").textContent.toLowerCase();
    panel.hidden = !words.every((word) => name.includes(word));
  });
});
addEventListener("beforeprint", () => open(panels, true));

// The pages work without this script. It sorts tables by a column and filters their rows.
"use strict";
for (const table of document.querySelectorAll(".site-table")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "↕";
    button.setAttribute("aria-label", `Sort by ${head.textContent}`);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const order = (one, other) => {
        const [a, b] = [key(one), key(other)];
        if (a === "" || b === "") return (a === "") - (b === ""); // empty cells stay at the end
        const numbers = [Number(a), Number(b)];
        const found = numbers.some(Number.isNaN) ? a.localeCompare(b, "en", { numeric: true }) : numbers[0] - numbers[1];
        return down ? -found : found;
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
for (const field of document.querySelectorAll("[data-filters]")) {
  const filtered = document.getElementById(field.dataset.filters);
  let rows = null; // with their texts, once someone filters: a page can have thousands
  field.addEventListener("input", () => {
    rows ??= [...filtered.querySelectorAll("tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [row, text] of rows) row.hidden = !words.every((word) => text.includes(word));
    for (const line of document.querySelectorAll("[data-unfiltered]")) line.hidden = words.length > 0;
    for (const part of filtered.querySelectorAll(".site-part")) {
      const shown = part.querySelectorAll("tbody tr:not([hidden])").length;
      part.hidden = shown === 0;
      part.style.setProperty("--rows", shown);
    }
  });
  field.closest("[data-scripted]").hidden = false;
}

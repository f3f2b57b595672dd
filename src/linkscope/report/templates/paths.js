// Sorts and filters the table of paths.

const within = document.querySelector(".paths");
const words = (text) => text.toLowerCase().replace(/[\s→,]+/g, " ").split(" ").filter(Boolean);
const value = (cell) => (cell.dataset.v === undefined ? null : Number(cell.dataset.v));
const compare = (one, other) => {
  const numbers = [value(one), value(other)];
  if (numbers.every((number) => number === null)) return one.textContent.localeCompare(other.textContent, "en", { numeric: true });
  return numbers.includes(null) ? 0 : numbers[0] - numbers[1];
};
const start = () => {
  const [filter, all, status] = [".filter input", ".all", "[role=status]"].map((one) => within.querySelector(one));
  const table = within.querySelector("table"), rows = [...table.tBodies[0].rows];
  const texts = new Map(rows.map((row) => [row, words(row.textContent).join(" ")]));
  const most = rows.filter((row) => !row.classList.contains("rest")).length;
  const show = () => {
    const wanted = words(filter.value);
    const found = [...table.tBodies[0].rows].filter((row) => {
      row.hidden = !wanted.every((word) => texts.get(row).includes(word));
      return !row.hidden;
    });
    found.forEach((row, index) => row.classList.toggle("rest", wanted.length === 0 && index >= most));
    const shown = wanted.length || all?.checked || !all ? found.length : most;
    status.textContent = found.length ? `${shown} of ${rows.length} rows` : "No row has all of these words.";
  };
  // A press on a heading sorts by its column: numbers the largest first, texts from A; the next press turns the order.
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const turned = { ascending: "descending", descending: "ascending" }[head.getAttribute("aria-sort")] || first;
      [...table.tHead.rows[0].cells].forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", turned);
      const sign = turned === "ascending" ? 1 : -1;
      const empty = (row) => head.classList.contains("n") && value(row.cells[column]) === null;
      rows.sort((one, other) => empty(one) - empty(other) || sign * compare(one.cells[column], other.cells[column]));
      table.tBodies[0].append(...rows);
      show();
    });
  });
  within.querySelector(".filter").hidden = false;
  filter.addEventListener("input", show);
  all?.addEventListener("change", show);
  show();
};
if (within) start();

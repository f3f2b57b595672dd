// Filters and opens paths, and makes downloads from their tables.

const panels = [...document.querySelectorAll("details.panel")];
const open = (all, wanted) => all.forEach((one) => { one.open = wanted; });
document.querySelector(".tools").hidden = false;
document.getElementById("open").addEventListener("click", () => open(panels, true));
document.getElementById("close").addEventListener("click", () => open(panels, false));
// The filter searches words, in any order, in the names of paths and tables. The first search reads the names.
const normalized = (text) => text.toLowerCase().replace(/["'()]/g, " ").replace(/,\s/g, " ").replace(/\s*->\s*/g, "->");
const cache = new Map();
const texts = (panel) => {
  if (!cache.has(panel)) {
    const name = normalized(panel.querySelector("h3").textContent);
    const tables = [...panel.querySelectorAll(".numbers .scroll")].map((table) => (
      { table, text: `${name} ${normalized(table.querySelector("caption").textContent)}` }));
    cache.set(panel, { name, tables });
  }
  return cache.get(panel);
};
document.getElementById("filter").addEventListener("input", (event) => {
  const words = normalized(event.target.value).split(/\s+/).filter(Boolean);
  const shown = panels.filter((panel) => {
    const { name, tables } = texts(panel);
    const left = words.filter((word) => !name.includes(word));
    const found = tables.filter(({ table, text }) => {
      const has = left.every((word) => text.includes(word));
      table.hidden = !has;
      return has;
    });
    panel.hidden = found.length === 0;
    return found.length > 0;
  });
  document.getElementById("none").hidden = shown.length > 0 || panels.length === 0;
});

// Downloads come from the tables, so the page holds each number once.
const units = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40,
  ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, "GB/s": 1, "%": 0.01 };
const rounded = (number) => Number(number.toPrecision(12));
const parts = (text) => { // '2.22 us [2.21, 2.25]' as [2.22e-6, 2.21e-6, 2.25e-6]
  const found = text.match(/^([\d.e+-]+) (\S+)(?: \[([\d.e+-]+), ([\d.e+-]+)\]| \(.*\))?$/);
  return found ? [1, 3, 4].map((at) => (found[at] === undefined ? null : rounded(found[at] * units[found[2]]))) : [null, null, null];
};
const names = { Size: "bytes", "Time [interval]": "time_s", "Rate [interval]": "gbps", "Total [interval]": "total_gbps",
  "% of peak": "of_peak", "Within a round": "within_rounds", "Between rounds": "between_medians" };
const withoutInterval = new Set(["bytes", "of_peak", "within_rounds", "between_medians"]);
const columns = ["path", "method", "bytes", "mode", "time_s", "time_s_low", "time_s_high", "gbps", "gbps_low", "gbps_high",
  "total_gbps", "total_gbps_low", "total_gbps_high", "of_peak", "within_rounds", "between_medians", "rounds", "status", "modelled"];
const numbers = () => panels.flatMap((panel) => [...panel.querySelectorAll(".numbers table")].flatMap((table) => {
  const heads = [...table.tHead.rows[0].cells].map((cell) => names[cell.textContent] || cell.textContent.toLowerCase());
  return [...table.tBodies[0].rows].map((row) => {
    const record = Object.fromEntries(columns.map((name) => [name, null]));
    record.path = panel.querySelector("h3").textContent;
    record.method = table.caption.textContent;
    record.modelled = document.querySelector(".banner") !== null;
    [...row.cells].forEach((cell, index) => {
      const name = heads[index], text = cell.textContent, [value, low, high] = parts(text);
      if (withoutInterval.has(name)) record[name] = value;
      else if (name + "_low" in record) Object.assign(record, { [name]: value, [name + "_low"]: low, [name + "_high"]: high });
      else record[name] = name === "rounds" ? (text ? Number(text) : null) : text;
    });
    return record;
  });
}));
const quoted = (value) => (value === null ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
const asCsv = (rows) => [columns, ...rows.map((row) => columns.map((name) => quoted(row[name])))].join("\n") + "\n";
const save = (button, type, text) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = button.dataset.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
document.getElementById("csv").addEventListener("click", (event) => save(event.target, "text/csv", asCsv(numbers())));
document.getElementById("json").addEventListener("click", (event) => save(event.target, "application/json", JSON.stringify(numbers())));

// Reads the points of the page once, when something asks for them, and saves them as CSV or JSON.

// A line without a quotation mark is split at its commas. Other lines may hold commas and line feeds within a field.
const fields = (line) => (line.includes('"')
  ? [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map((one) => (one[1] === undefined ? one[2] : one[1].replaceAll('""', '"')))
  : line.split(","));
const marks = (text) => text.split('"').length - 1;
const parse = (text) => {
  const rows = [], lines = text.split("\n");
  for (let at = 0; at < lines.length; at += 1) {
    let line = lines[at];
    if (line.includes('"')) while (marks(line) % 2 && at + 1 < lines.length) line += `\n${lines[at += 1]}`;
    if (line) rows.push(fields(line));
  }
  return rows;
};
const text = () => document.getElementById("points").textContent;
const numeric = /^(bytes|rounds|within|between|of_peak|time.*|gbps.*|total.*|peak.*)$/;
let read = null;
// Every point as an object with the names of the columns; null where a field is empty.
page.points = () => {
  if (read) return read;
  const [columns, ...rows] = parse(text());
  const numbers = columns.map((name) => numeric.test(name));
  read = rows.map((row) => {
    const point = {};
    columns.forEach((name, at) => {
      const field = row[at];
      point[name] = numbers[at] ? (field === "" ? null : Number(field)) : field;
    });
    return point;
  });
  return read;
};
page.save = (name, blob) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
const json = () => JSON.stringify(page.points().map((point) => ({
  ...point, bidirectional: point.bidirectional === "true", modelled: point.modelled === "true" })));
const buttons = document.querySelector(".downloads");
if (buttons) {
  buttons.hidden = false;
  const [csv, asJson] = buttons.querySelectorAll("button");
  csv.addEventListener("click", () => page.save(csv.dataset.name, new Blob([text()], { type: "text/csv" })));
  asJson.addEventListener("click", () => page.save(asJson.dataset.name, new Blob([json()], { type: "application/json" })));
}

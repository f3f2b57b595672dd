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
// The text lacks the columns that the id and the status hold.
const ID = /^([^/]+)\/([^/]+)\/(.+)\.([a-z_]+)->(.+)\.([a-z_]+)\/(\d+)(?:\?(.*))?$/;
const FROM_ID = ["kind", "engine", "src", "src_memory", "dst", "dst_memory", "bytes", "mode", "bidirectional", "params"];
const plain = (word) => {
  try { return decodeURIComponent(word).replaceAll("\r", " "); } catch { return word; }  // written by another program
};
const fromId = (id) => {
  const found = ID.exec(id);
  if (!found) return FROM_ID.map(() => "");
  const [, kind, engine, src, srcMemory, dst, dstMemory, bytes, text] = found;
  const params = (text ? text.split("&") : []).map((pair) => pair.split("=").map(plain));
  const param = (name) => (params.find((pair) => pair[0] === name) || ["", ""])[1];
  const others = params.filter(([name]) => name !== "mode" && name !== "bidirectional").map((pair) => pair.join("="));
  return [kind, engine, plain(src), srcMemory, plain(dst), dstMemory, bytes, param("mode"), param("bidirectional") || "false", others.join(";")];
};
let whole = null;
// Every column of every point as text, the names of the columns first.
const table = () => {
  if (whole) return whole;
  const [names, ...rows] = parse(document.getElementById("points").textContent);
  const time = names.indexOf("time_s"), status = names.indexOf("status");
  const made = (row, derived, origin) => [row[0], ...derived, ...row.slice(1, status + 1), origin, ...row.slice(status + 1)];
  const origin = (row) => (row[time] === "" ? "" : row[status] === "inherited" ? "inherited" : "measured");
  whole = [made(names, FROM_ID, "origin"), ...rows.map((row) => made(row, fromId(row[0]), origin(row)))];
  return whole;
};
const quoted = (field) => (/[",\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
const text = () => table().map((row) => `${row.map(quoted).join(",")}\n`).join("");
const numeric = /^(bytes|rounds|within|between|of_peak|time.*|gbps.*|total.*|peak.*)$/;
let read = null;
// Every point as an object with the names of the columns; null where a field is empty.
page.points = () => {
  if (read) return read;
  const [columns, ...rows] = table();
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

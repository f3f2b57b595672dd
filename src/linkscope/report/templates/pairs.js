// Menus of the matrix of pairs: another direction, method, size or colour.

const menus = document.querySelector(".menus");
const build = () => {
  const { scale, matrices } = JSON.parse(menus.querySelector("script").textContent);
  const [direction, method, size, colour] = menus.querySelectorAll("select");
  const table = menus.querySelector("table");
  const element = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  };
  const options = (select, names) => {
    const before = select.value;
    select.replaceChildren(...[...new Set(names)].map((name) => element("option", name, { value: name })));
    if (names.includes(before)) select.value = before;
  };
  const within = (...selects) => matrices.filter((one) => selects.every((select) => one[select.name] === select.value));
  const percent = (value) => { // as deviation_colour() of pair_grid.py
    const text = (100 * value).toFixed(1);
    return `${Number(text) < 0 ? text : `+${Math.abs(text).toFixed(1)}`} %`;
  };
  const coloured = (deviation, share) => {
    if (colour.value === "deviation") {
      return deviation === null ? ["", ""] : [`d${scale.edges.filter((edge) => deviation >= edge).length}`, percent(deviation)];
    }
    if (share === null) return ["", ""];
    const grade = scale.grades.findIndex((edge) => share >= edge);
    const text = 100 * share >= 9.95 ? (100 * share).toFixed(0) : Number((100 * share).toPrecision(2));
    return [scale.shares[grade < 0 ? scale.grades.length : grade], `${text} %${share > 1 ? " (!)" : ""}`];
  };
  const anchorOf = (...parts) => parts.map((part) => part.toLowerCase().replace(/[^a-z0-9]+/g, "")).join("-"); // as anchors.py
  const outlines = { "^": "inherited", "~": "missed" };
  const cellOf = (anchor, [, , number, deviation, share]) => {
    const [style, below] = coloured(deviation, share);
    const cell = element("td", "", { class: `${style} ${outlines[number[0]] || ""}`.trim() });
    const link = element("a", number, document.getElementById(anchor) ? { href: `#${anchor}` } : {}); // plain copies have a row
    link.append(element("small", below));
    cell.append(link);
    return cell;
  };
  const legend = menus.querySelector(".legend");
  const swatch = (style) => {
    const made = legend.querySelector("svg").cloneNode(true);
    made.setAttribute("class", `swatch ${style}`);
    return made;
  };
  const explain = () => {
    const styles = colour.value === "share" ? scale.shares : scale.deviation.map((_, index) => `d${index}`);
    legend.replaceChildren(...scale[colour.value].map((text, index) => {
      const entry = element("li", "");
      entry.append(swatch(styles[index]), " ", element("span", text));
      return entry;
    }));
  };
  const draw = () => {
    explain();
    const [shown] = within(direction, method, size);
    const cells = new Map(shown.cells.map((cell) => [`${cell[0]} ${cell[1]}`, cell]));
    const head = element("tr", "");
    head.append(element("th", "from \\ to", { scope: "col" }), ...shown.columns.map((name) => element("th", name, { scope: "col" })));
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(...shown.rows.map((row, at) => {
      const line = element("tr", "");
      line.append(element("th", row, { scope: "row" }), ...shown.columns.map((column, index) => {
        const cell = cells.get(`${at} ${index}`);
        return cell ? cellOf(anchorOf(shown.kind, row, column), cell) : element("td", "");
      }));
      return line;
    }));
    menus.querySelector(".caption").textContent = `${shown.direction}, ${shown.method}, at ${shown.size}, ${shown.unit}`;
  };
  const update = () => {
    options(method, within(direction).map((one) => one.method));
    options(size, within(direction, method).map((one) => one.size));
    draw();
  };
  options(direction, matrices.map((one) => one.direction));
  direction.addEventListener("change", update);
  method.addEventListener("change", update);
  size.addEventListener("change", draw);
  colour.addEventListener("change", draw);
  if (matrices[0].cells.every((cell) => cell[3] === null)) colour.value = "share";
  update();
  menus.querySelector(".tools").hidden = false;
};
if (menus) build();

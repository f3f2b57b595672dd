// The explorer: choices of curves, kept in the address, and what they draw.

const root = document.querySelector(".explorer");
const MOST = 8;
const KINDS = ["h2d", "d2h", "d2d", "local", "h2h"];
const CHOICES = ["mode", "direction", "value", "x", "y", "over", "under"];
const find = (one) => root.querySelector(one);
const select = (name) => find(`select[name=${name}]`);
const pathKey = (point) => [point.kind, point.src, point.dst].join("|");
const methodKey = (point) => [point.engine, point.src_memory, point.dst_memory, point.params].join("|");
const SINGLE = "single";

// Curves by path, method, mode and direction. Points of several named paths have no path of their own.
let known = null, names = null, defaults = null, state = null, chart = null, drawn = [], focus = null;
const curvesOf = (points) => {
  const found = new Map();
  points.forEach((point) => {
    if (!point.bytes || point.time_s === null || point.kind === "concurrent") return;
    const key = [pathKey(point), methodKey(point), point.mode, point.bidirectional].join("\n");
    if (!found.has(key)) found.set(key, { key, path: pathKey(point), method: methodKey(point), mode: point.mode, bi: point.bidirectional === "true", points: [] });
    found.get(key).points.push(point);
  });
  found.forEach((curve) => curve.points.sort((one, other) => one.bytes - other.bytes));
  return [...found.values()];
};
const word = (of, id) => names[of][id] || id.replaceAll("_", " ");
const pathName = (key) => {
  const [kind, src, dst] = key.split("|"), what = word(0, kind);
  return src === dst ? `${what} within ${src}` : `${what} ${src} → ${dst}`;
};
const methodName = (key) => {
  const [engine, src, dst, params] = key.split("|");
  const special = params.split(";").filter((one) => one && defaults[one.split("=")[0]] !== one.slice(one.indexOf("=") + 1));
  return [word(1, engine), [...new Set([src, dst])].map((one) => word(2, one)).join(" → "), ...special.map((one) => one.replace("=", " "))].join(", ");
};
const curveName = (curve) => [pathName(curve.path), methodName(curve.method), ...(curve.bi ? ["bidirectional"] : []), ...(curve.mode === SINGLE ? ["single"] : [])].join(", ");

// The state and its address.
const parsed = (query) => {
  const given = new URLSearchParams(query);
  const zoom = (given.get("zoom") || "").split(",").map(Number);
  const read = { path: given.getAll("path"), method: given.getAll("method"), zoom: zoom.length === 2 && zoom[0] > 0 && zoom[1] > zoom[0] ? zoom : null };
  const first = { mode: "batched", direction: "uni", value: "rate", x: "log", y: "linear", over: "", under: "" };
  CHOICES.forEach((name) => { read[name] = given.get(name) ?? first[name]; });
  ["mode", "direction", "value", "x", "y"].forEach((name) => {
    if (![...select(name).options].some((one) => one.value === read[name])) read[name] = first[name];
  });
  return read;
};
const query = () => {
  const made = new URLSearchParams();
  ["path", "method"].forEach((name) => state[name].forEach((one) => made.append(name, one)));
  CHOICES.forEach((name) => { if (state[name]) made.set(name, state[name]); });
  if (state.zoom) made.set("zoom", state.zoom.map((one) => Number(one.toPrecision(6))).join(","));
  return made.toString();
};
const remember = () => history.pushState(null, "", `#explore?${query()}`);

// Values of a point: a path that ends at several places has only totals.
const ends = (point, names) => names.map((name) => point[name]);
const quantity = (point) => {
  const joint = /:all$/.test(point.src) || /:all$/.test(point.dst);
  const total = ends(point, ["total_gbps", "total_low", "total_high"]), rate = ends(point, ["gbps", "gbps_low", "gbps_high"]);
  if (state.value === "time") return ends(point, ["time_s", "time_low_s", "time_high_s"]);
  if (state.value === "total" || (state.value === "rate" && joint)) return total[0] === null ? rate : total;
  if (state.value === "rate") return rate;
  return rate.map((one) => (one === null || joint || !point.peak_gbps ? null : one / point.peak_gbps));
};
const valued = (curve) => curve.points.map((point) => {
  const [value, low, high] = quantity(point);
  return { bytes: point.bytes, value, low, high, rounds: point.rounds, status: point.status, origin: point.origin, note: point.note };
}).filter((one) => one.value !== null);
const ratio = (over, under) => over.points.flatMap((one) => {
  const other = under.points.find((of) => of.bytes === one.bytes);
  if (!other || !other.value) return [];
  const known = one.low !== null && other.low > 0;
  const both = (name) => [...new Set([one[name], other[name]])].filter(Boolean).join(" / ");
  return [{ bytes: one.bytes, value: one.value / other.value, low: known ? one.low / other.high : null, high: known ? one.high / other.low : null,
    rounds: Math.min(one.rounds, other.rounds) || null, status: both("status"), origin: both("origin"), note: both("note") }];
});

const chosen = () => known.filter((curve) => state.path.includes(curve.path) && state.method.includes(curve.method)
  && (state.mode === "all" || (state.mode === SINGLE) === (curve.mode === SINGLE))
  && (state.direction === "all" || (state.direction === "bi") === curve.bi));

const draw = () => {
  const found = chosen().map((curve) => ({ key: curve.key, name: curveName(curve), points: valued(curve) })).filter((curve) => curve.points.length);
  const shown = found.slice(0, MOST).map((curve, colour) => ({ ...curve, colour }));
  const [over, under] = ["over", "under"].map((name) => shown.find((curve) => curve.key === state[name]));
  drawn = shown;
  if (over && under && over !== under) drawn = [{ name: `${over.name} / ${under.name}`, colour: 0, points: ratio(over, under) }].filter((one) => one.points.length);
  state.kind = drawn === shown ? state.value : "ratio";
  ["over", "under"].forEach((name) => {
    const none = new Option("none", "");
    select(name).replaceChildren(none, ...shown.map((curve) => new Option(curve.name, curve.key, false, curve.key === state[name])));
  });
  const legend = find(".curves"), colours = page.colours();
  legend.replaceChildren(...drawn.map((curve) => {
    const item = document.createElement("li");
    item.innerHTML = `<svg class="swatch" width="36" height="10" aria-hidden="true"><path d="M0 5h36" stroke-width="2" stroke="${colours.curves[curve.colour]}" stroke-dasharray="${page.DASHES[curve.colour].join(" ")}"/></svg>`;
    item.append(` ${curve.name}`);
    return item;
  }));
  const box = find(".chart-box");
  chart?.destroy();
  box.replaceChildren();
  chart = focus = null;
  const few = found.length > MOST ? `The chart shows ${MOST} of ${found.length} curves: choose fewer paths or methods.` : "";
  say(drawn.length ? few : "No measured curve has these choices: choose a path and a method.");
  if (drawn.length) chart = page.plot(box, drawn, state, { zoom, hover });
};
const say = (text) => { find(".shown").textContent = text; };

// A tooltip at the nearest point; the keys announce the point too.
const told = (curve, one) => {
  const { number, size, interval } = page.format, kind = state.kind;
  return [curve.name, `${size(one.bytes)}: ${number(one.value, kind)}`, interval(one.low, one.high, kind),
    one.rounds ? `${one.rounds} rounds` : "no rounds of its own", [one.status, one.origin === one.status ? "" : one.origin].filter(Boolean).join(", "), one.note].filter(Boolean);
};
const point = (line, index) => {
  const curve = drawn[line], one = curve.points[index], over = chart.over;
  focus = [line, index];
  const tip = over.querySelector(".tip") || over.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
  tip.hidden = false;
  tip.replaceChildren(...told(curve, one).map((text) => Object.assign(document.createElement("div"), { textContent: text })));
  const [left, top] = [chart.valToPos(one.bytes, "x"), chart.valToPos(one.value, "y")];
  tip.style.left = `${Math.max(0, Math.min(left + 12, over.clientWidth - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, top - tip.offsetHeight - 12)}px`;
};
const hover = (left, top) => {
  const tip = chart?.over.querySelector(".tip");
  if (!chart || left < 0) { if (tip) tip.hidden = true; return; }
  let best = [30, null];
  drawn.forEach((curve, line) => curve.points.forEach((one, index) => {
    const far = Math.hypot(chart.valToPos(one.bytes, "x") - left, chart.valToPos(one.value, "y") - top);
    if (far < best[0]) best = [far, [line, index]];
  }));
  if (best[1]) point(...best[1]); else if (tip) tip.hidden = true;
};
const zoom = (range) => {
  state.zoom = range;
  remember();
  draw();
};
const closer = () => { // around the chosen point, half of the sizes shown now
  const [low, high] = page.ranges(drawn, state).x, bytes = focus ? drawn[focus[0]].points[focus[1]].bytes : Math.sqrt(low * high);
  const log = state.x === "log", quarter = log ? (high / low) ** 0.25 : (high - low) / 4;
  zoom(log ? [bytes / quarter, bytes * quarter] : [Math.max(1, bytes - quarter), bytes + quarter]);
};
const keys = (event) => {
  if (!chart) return;
  const [line, index] = focus || [0, -1], last = drawn[line].points.length - 1;
  const nearest = (other) => {
    const bytes = drawn[line].points[Math.max(0, index)].bytes, sizes = drawn[other].points.map((one) => Math.abs(Math.log(one.bytes / bytes)));
    return [other, sizes.indexOf(Math.min(...sizes))];
  };
  const moves = {
    ArrowRight: () => [line, Math.min(last, index + 1)], ArrowLeft: () => [line, Math.max(0, index - 1)], Home: () => [line, 0], End: () => [line, last],
    ArrowDown: () => nearest((line + 1) % drawn.length), ArrowUp: () => nearest((line + drawn.length - 1) % drawn.length),
  };
  if (moves[event.key]) {
    point(...moves[event.key]());
    say(told(drawn[focus[0]], drawn[focus[0]].points[focus[1]]).join(", "));
  } else if (event.key === "+") closer();
  else if (event.key === "-") zoom(null);
  else return;
  event.preventDefault();
};

// The lists have all paths, and the methods of the chosen paths.
const list = (name, keys, named) => {
  const made = keys.map((key) => {
    const label = document.createElement("label"), input = Object.assign(document.createElement("input"), { type: "checkbox", value: key, checked: state[name].includes(key) });
    label.append(input, ` ${named(key)}`);
    return label;
  });
  find(`[data-name=${name}]`).replaceChildren(...made);
  narrow(find(`[data-name=${name}]`));
};
const narrow = (of) => {
  const words = of.parentElement.querySelector("[type=search]").value.toLowerCase().split(/\s+/);
  [...of.children].forEach((label) => {
    label.hidden = !label.firstChild.checked && !words.every((word) => label.textContent.toLowerCase().includes(word));
  });
};
const plain = (key) => { // plain copies and common methods come first
  const at = KINDS.indexOf(key.split("|")[0]);
  return at < 0 ? KINDS.length : at;
};
const lists = () => {
  const paths = [...new Set(known.map((curve) => curve.path))];
  list("path", paths.sort((one, other) => plain(one) - plain(other) || one.localeCompare(other, "en", { numeric: true })), pathName);
  const methods = [...new Set(known.filter((curve) => state.path.includes(curve.path)).map((curve) => curve.method))];
  list("method", methods.sort((one, other) => state.method.includes(other) - state.method.includes(one) || methodName(one).split(", ").length - methodName(other).split(", ").length || one.localeCompare(other)), methodName);
  ["mode", "direction", "value", "x", "y"].forEach((name) => { select(name).value = state[name]; });
};
const show = (query) => {
  if (!known) {
    defaults = JSON.parse(root.dataset.defaults);
    names = JSON.parse(root.dataset.names);
    known = curvesOf(page.points());
  }
  state = parsed(query);
  if (query === root.dataset.chosen && !state.path.length) { // no plain copy: the first curve of the run
    Object.assign(state, { path: [known[0].path], method: [known[0].method], mode: "all", direction: "all" });
  }
  lists();
  draw();
};
const fromAddress = () => location.hash.startsWith("#explore?");
const follow = (event) => {
  if (fromAddress()) show(location.hash.slice("#explore?".length));
  else if (state && !location.hash.slice(1)) show(root.dataset.chosen);
  if (fromAddress() && event?.type !== "popstate") root.scrollIntoView();
};
const change = (event) => {
  const { name, type, value } = event.target;
  if (type === "search") return;
  if (type === "checkbox") {
    const of = event.target.closest("[data-name]").dataset.name;
    state[of] = [...event.target.closest(".list").querySelectorAll("input:checked")].map((one) => one.value);
    if (of === "path") lists();
  } else if (CHOICES.includes(name)) state[name] = value;
  remember();
  draw();
};
const start = () => {
  root.hidden = false;
  document.querySelectorAll("[data-explore]").forEach((one) => one.setAttribute("href", one.dataset.explore));
  page.modelled = document.querySelector(".banner") !== null;
  root.addEventListener("change", change);
  root.querySelectorAll("[type=search]").forEach((one) => one.addEventListener("input", () => narrow(one.parentElement.querySelector(".list"))));
  find(".chart-box").addEventListener("keydown", keys);
  find(".whole").addEventListener("click", () => zoom(null));
  find(".svg").addEventListener("click", () => page.save(`${root.dataset.file}.svg`, new Blob([page.svg(drawn, state)], { type: "image/svg+xml" })));
  find(".png").addEventListener("click", async () => page.save(`${root.dataset.file}.png`, await page.png(page.svg(drawn, state))));
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (state) draw(); });
  let wide = 0;
  new ResizeObserver(([box]) => {
    const now = Math.round(box.contentRect.width);
    if (now === 0) return; // hidden, or a window without width: nothing to draw in
    if (state && wide && now !== wide) draw();
    wide = now;
  }).observe(find(".chart-box"));
  // The points are read when the explorer comes near the window, so that the page appears at once.
  new IntersectionObserver((seen, watch) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    watch.disconnect();
    if (!state) show(fromAddress() ? location.hash.slice("#explore?".length) : root.dataset.chosen);
  }, { rootMargin: "600px" }).observe(root);
  addEventListener("beforeprint", () => { if (!state) show(root.dataset.chosen); });
  if (fromAddress()) follow();
};
if (root) start();

// Draws curves with uPlot: axes, lines, bands of intervals, marks of points, and the tooltip.

const UNITS = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
const TIMES = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
const unit = (value, units) => units.find(([, size]) => Math.abs(value) >= size * 0.9999) || units.at(-1);
const digits = (number) => String(Number(number.toPrecision(4)));
const number = (value, kind) => {
  if (kind === "time") {
    const [name, size] = unit(value, TIMES);
    return `${digits(value / size)} ${name}`;
  }
  return kind === "share" ? `${digits(100 * value)} %` : kind === "ratio" ? `${digits(value)} ×` : `${digits(value)} GB/s`;
};
page.format = {
  number,
  size: (bytes) => { const [name, size] = unit(bytes, UNITS); return `${digits(bytes / size)} ${name}`; },
  interval: (low, high, kind) => (low === null ? "no interval" : `${number(low, kind)} to ${number(high, kind)}`),
};
page.DASHES = [[], [9, 4], [2, 3], [9, 3, 2, 3], [5, 3], [14, 4], [2, 6], [9, 3, 2, 3, 2, 3]];
page.colours = () => {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return { curves: [1, 2, 3, 4, 5, 6, 7, 8].map((one) => of(`c${one}`)), ink: of("ink"), soft: of("soft"), line: of("line"), paper: of("paper") };
};

// The ranges of both axes: all sizes or the zoomed ones, and the values with their intervals within them.
page.ranges = (curves, state) => {
  const shown = curves.flatMap((curve) => curve.points);
  const sizes = shown.map((one) => one.bytes);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const apart = least < most ? [least, most] : [least / 2, most * 2];
  const x = state.zoom || (state.x === "log" ? [apart[0] / 1.3, apart[1] * 1.3] : [0, apart[1] * 1.03]);
  const inside = shown.filter((one) => one.bytes >= x[0] && one.bytes <= x[1]);
  const ends = (inside.length ? inside : shown).flatMap((one) => [one.value, one.low, one.high]).filter((one) => one !== null);
  const positive = ends.filter((one) => one > 0);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  if (state.y === "log") return { x, y: positive.length ? [Math.min(...positive) / 1.3, Math.max(...positive) * 1.3] : [0.1, 1] };
  const pad = 0.06 * (high - low || high || 1);
  return { x, y: state.zoom ? [Math.max(0, low - pad), high + pad] : [0, high + pad] };
};

// Powers of two below each other, as far apart as the room allows; on a linear axis, multiples of one.
page.sizeTicks = ([low, high], log, most) => {
  if (!log) {
    let step = 2 ** Math.ceil(Math.log2((high - low) / most));
    step = Math.max(step, 1);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) => (first + index) * step);
  }
  const [first, last] = [Math.ceil(Math.log2(low)), Math.floor(Math.log2(high))];
  const step = Math.max(1, Math.ceil((last - first + 1) / most));
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, index) => 2 ** (first + index * step)).filter((one) => one >= low);
};
page.valueTicks = ([low, high], log) => {
  if (log) {
    const found = [];
    const steps = high / low < 30 ? [1, 2, 5] : [1];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) steps.forEach((step) => found.push(step * power));
    return found.filter((one) => one >= low && one <= high);
  }
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, index) => (first + index) * step);
};

const marks = (u, curves, colours) => {
  const { ctx } = u, dot = devicePixelRatio || 1;
  const at = (bytes, value) => [u.valToPos(bytes, "x", true), u.valToPos(value, "y", true)];
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  curves.forEach((curve) => {
    const colour = colours.curves[curve.colour];
    const banded = curve.points.filter((one) => one.low !== null && (u.scales.y.distr !== 3 || one.low > 0));
    ctx.globalAlpha = 0.18;
    ctx.fillStyle = colour;
    ctx.beginPath();
    [...banded.map((one) => at(one.bytes, one.high)), ...banded.toReversed().map((one) => at(one.bytes, one.low))]
      .forEach(([x, y]) => ctx.lineTo(x, y));
    ctx.fill();
    ctx.globalAlpha = 1;
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1.5 * dot;
    ctx.setLineDash([]);
    curve.points.forEach((one) => {
      const [x, y] = at(one.bytes, one.value);
      ctx.fillStyle = one.origin === "measured" ? colour : colours.paper;
      ctx.beginPath();
      ctx.arc(x, y, 2.75 * dot, 0, 7);
      ctx.fill();
      ctx.stroke();
      if (one.status === "missed precision") { ctx.beginPath(); ctx.arc(x, y, 6 * dot, 0, 7); ctx.stroke(); }
    });
  });
  ctx.restore();
};
const watermark = (u, colours) => {
  const { ctx } = u, { left, top, width, height } = u.bbox;
  ctx.save();
  ctx.globalAlpha = 0.09;
  ctx.fillStyle = colours.ink;
  ctx.font = `700 ${Math.round(Math.min(width / 7, height / 2.5))}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.translate(left + width / 2, top + height / 2);
  ctx.rotate(-0.3);
  ctx.fillText("MODELLED", 0, 0);
  ctx.restore();
};

// The chart of the curves in `box`. `on.zoom` gets the range of a drag or null, `on.hover` the mouse in CSS pixels.
page.plot = (box, curves, state, on) => {
  const colours = page.colours(), ranges = page.ranges(curves, state), kind = state.kind;
  const isLog = { x: state.x === "log", y: state.y === "log" }; // uPlot asks for ticks later, when the state may be another
  const sizes = [...new Set(curves.flatMap((curve) => curve.points.map((one) => one.bytes)))].sort((one, other) => one - other);
  const columns = curves.map((curve) => {
    const of = new Map(curve.points.map((one) => [one.bytes, isLog.y && one.value <= 0 ? null : one.value]));
    return sizes.map((bytes) => of.get(bytes) ?? null);
  });
  const axis = { stroke: colours.soft, grid: { stroke: colours.line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const width = box.clientWidth || 600;
  return new uPlot({
    pxAlign: 0, // whole pixels would move the lines away from their dots
    width, height: 300, legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false,
      bind: { dblclick: () => () => on.zoom(null) } },
    scales: {
      x: { time: false, range: () => ranges.x, ...(isLog.x ? { distr: 3, log: 2 } : {}) },
      y: { range: () => ranges.y, ...(isLog.y ? { distr: 3, log: 10 } : {}) },
    },
    axes: [
      { ...axis, splits: () => page.sizeTicks(ranges.x, isLog.x, width / 90), filter: (u, splits) => splits, values: (u, splits) => splits.map(page.format.size) },
      { ...axis, size: 84, splits: () => page.valueTicks(ranges.y, isLog.y), filter: (u, splits) => splits, values: (u, splits) => splits.map((one) => number(one, kind)) },
    ],
    series: [{}, ...curves.map((curve) => ({ stroke: colours.curves[curve.colour], width: 1.75, dash: page.DASHES[curve.colour], spanGaps: true, pxAlign: 0, points: { show: false } }))],
    hooks: {
      draw: [(u) => { if (page.modelled) watermark(u, colours); marks(u, curves, colours); }],
      setCursor: [(u) => on.hover(u.cursor.left, u.cursor.top)],
      setSelect: [(u) => {
        const { left, width: wide } = u.select;
        if (wide > 3) on.zoom([u.posToVal(left, "x"), u.posToVal(left + wide, "x")]);
      }],
    },
  }, [sizes, ...columns], box);
};

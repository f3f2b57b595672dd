// Draws the curves of the explorer as an SVG with a legend, to be saved.

const WIDTH = 960, LEFT = 90, RIGHT = 20, TOP = 20, HEIGHT = 460, LINE = 20;
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
page.svg = (curves, state) => {
  const colours = page.colours(), { x, y } = page.ranges(curves, state), { number, size } = page.format;
  const logs = { x: state.x === "log", y: state.y === "log" };
  const scale = ([low, high], log, from, to) => (value) => {
    const of = log ? Math.log : Number;
    return (from + (to - from) * (of(value) - of(low)) / (of(high) - of(low))).toFixed(1);
  };
  const across = scale(x, logs.x, LEFT, WIDTH - RIGHT), up = scale(y, logs.y, HEIGHT, TOP);
  const height = HEIGHT + 55 + LINE * curves.length;
  const parts = [`<rect width="${WIDTH}" height="${height}" fill="${colours.paper}"/>`];
  const text = (px, py, words, more) => parts.push(`<text x="${px}" y="${py}" fill="${colours.soft}" ${more}>${escaped(words)}</text>`);
  page.valueTicks(y, logs.y).forEach((value) => {
    parts.push(`<path d="M${LEFT} ${up(value)}H${WIDTH - RIGHT}" stroke="${colours.line}"/>`);
    text(LEFT - 8, Number(up(value)) + 4, number(value, state.kind), 'text-anchor="end"');
  });
  page.sizeTicks(x, logs.x, 10).forEach((bytes) => {
    parts.push(`<path d="M${across(bytes)} ${TOP}V${HEIGHT}" stroke="${colours.line}"/>`);
    text(across(bytes), HEIGHT + 18, size(bytes), 'text-anchor="middle"');
  });
  if (page.modelled) {
    parts.push(`<text transform="translate(${WIDTH / 2} ${HEIGHT / 2}) rotate(-18)" text-anchor="middle" font-size="120" font-weight="700" fill="${colours.ink}" opacity="0.09">MODELLED</text>`);
  }
  parts.push(`<clipPath id="inside"><rect x="${LEFT}" y="${TOP}" width="${WIDTH - LEFT - RIGHT}" height="${HEIGHT - TOP}"/></clipPath>`);
  curves.forEach((curve, index) => {
    const colour = colours.curves[curve.colour], dash = page.DASHES[curve.colour].join(" ");
    const shown = curve.points.filter((one) => !logs.y || one.value > 0);
    const banded = shown.filter((one) => one.low !== null && (!logs.y || one.low > 0));
    const line = (points, end) => points.map((one) => `${across(one.bytes)} ${up(one[end])}`).join("L");
    const band = banded.length ? `<path d="M${line(banded, "high")}L${line(banded.toReversed(), "low")}Z" fill="${colour}" opacity="0.18"/>` : "";
    const dots = shown.map((one) => `<circle cx="${across(one.bytes)}" cy="${up(one.value)}" r="2.75" stroke="${colour}" stroke-width="1.5" fill="${one.origin === "measured" ? colour : colours.paper}"/>`
      + (one.status === "missed precision" ? `<circle cx="${across(one.bytes)}" cy="${up(one.value)}" r="6" stroke="${colour}" fill="none"/>` : ""));
    const stroke = `stroke="${colour}" stroke-width="1.75" stroke-dasharray="${dash}" fill="none"`;
    parts.push(`<g clip-path="url(#inside)">${band}<path class="curve" d="M${line(shown, "value")}" ${stroke}/>${dots.join("")}</g>`);
    const row = HEIGHT + 48 + LINE * index;
    parts.push(`<path d="M${LEFT} ${row - 4}h40" ${stroke}/>`);
    text(LEFT + 50, row, curve.name, "");
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="system-ui, sans-serif" font-size="12">${parts.join("")}</svg>`;
};

// The drawing as a PNG of twice its size.
page.png = (svg) => new Promise((done, fail) => {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(done, "image/png");
  };
  image.onerror = fail;
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
});

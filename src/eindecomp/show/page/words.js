// What the page shows, and how numbers, bytes and elements of the page are made of it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const VERTICES = DATA.vertices;

const nameOf = (number) => VERTICES[number].name;

const byId = (id) => document.getElementById(id);

/** An element with properties and children; strings become text, never markup. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "on")
      for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "style")
      Object.assign(element.style, value); // by CSSOM: the policy allows no style attributes
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const SCALES = {
  bytes: [
    [2 ** 40, " TiB"],
    [2 ** 30, " GiB"],
    [2 ** 20, " MiB"],
    [2 ** 10, " KiB"],
    [1, " B"],
  ],
  elements: [
    [1e12, " T"],
    [1e9, " G"],
    [1e6, " M"],
    [1, ""],
  ],
  seconds: [
    [1, " s"],
    [1e-3, " ms"],
    [1e-6, " µs"],
    [1e-9, " ns"],
  ],
};

/** An amount for a table: the same words as `show/words.py` uses. */
function short(amount, unit) {
  if (amount === null || amount === undefined) return "–";
  if (amount === 0) return "0";
  if (amount < 0) return "−" + short(-amount, unit);
  const scales = SCALES[unit];
  if (!scales) return `${Number(amount.toPrecision(6)).toLocaleString("en")} ${unit}`.trimEnd();
  if (unit === "elements" && amount < 1e6) return amount.toLocaleString("en");
  const [scale, word] = scales.find(([least]) => amount >= least) ?? scales[scales.length - 1];
  return threeDigits(amount / scale) + word;
}

/** A number with so many decimals: halves go to the even neighbour, as they do in Python. */
function rounded(number, decimals) {
  const places = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  const scaled = number * 10 ** decimals;
  // What lies exactly between two is a multiple of this power of two: the rest only looks so.
  const between = scaled % 1 === 0.5 && (number * 2 ** (decimals + 1)) % 1 === 0;
  const even = between ? 2 * Math.round(scaled / 2) : null;
  const near = between ? even / 10 ** decimals : Number(number.toFixed(decimals));
  return near.toLocaleString("en", places);
}

function threeDigits(number) {
  if (number >= 99.95) return rounded(number, 0);
  return String(Number(rounded(number, number >= 9.995 ? 1 : 2)));
}

const percent = (share) =>
  share > 0 && share < 1e-4 ? "<0.01 %" : threeDigits(100 * share) + " %";
const times = (ratio) =>
  ratio === null ? "∞" : rounded(ratio, ratio < 10 ? 2 : ratio < 100 ? 1 : 0) + "×";
const bytes = (amount) => short(amount, "bytes");
const cost = (amount) => short(amount, DATA.unit);

/** An amount that stands out where it is something. */
function amount(number, words = bytes) {
  return make("span", { class: number ? "amount" : "amount zero" }, words(number));
}

/** What a vertex is computed of, or the whole statement of an input. */
const rightSide = (vertex) =>
  vertex.text.includes(" <- ") ? vertex.text.slice(vertex.text.indexOf(" <- ") + 4) : vertex.text;

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** The bytes that devices receive for a vertex. */
const movedFor = (vertex) =>
  sum(vertex.inputs.map((input) => input[1])) + vertex.reduced + vertex.kept;

/** Who reads each vertex, as [reader, which of its inputs]. */
const READERS = VERTICES.map(() => []);
VERTICES.forEach((vertex, number) =>
  vertex.inputs.forEach(([source], k) => READERS[source].push([number, k])),
);

/** The colours of the style sheet as they are now, for canvases. */
const COLOURS = {};
function readColours() {
  const probe = make("span", { hidden: true });
  document.body.append(probe);
  for (const name of [
    "back",
    "raised",
    "ink",
    "quiet",
    "line",
    "strong-line",
    "accent",
    "accent-soft",
    "move",
    "move-dim",
    "still",
    "box",
    "source",
    "good",
    "kind-0",
    "kind-1",
    "kind-2",
    "kind-3",
    "kind-4",
  ]) {
    probe.style.color = `var(--${name})`;
    COLOURS[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

// The data of the page, decoded. All data from rows enters the document as text nodes, never as markup. The parts of
// the page's script share one scope; a judgement or a pair is named by its row, an aspect by its place.

const FAILED = 1, RATIONALE_CUT = 2, CANDIDATE_CUT = 4;
const LONG = 1200;          // characters of a text that are shown before "Show all"
const LONG_IN_PRINT = 20000;
const KEPT_CHUNKS = matchMedia("(max-width: 860px)").matches ? 50 : 600;  // chunks of texts that stay in memory
const ROW = 62;             // height of a line of the list, in CSS pixels, as in the style sheet
const SYSTEM_COLOURS = [
  "#3b7ea1", "#d1743f", "#5a9367", "#a6588f", "#c2a03a", "#6a6fb3", "#8a6d56", "#4aa0a0",
  "#b8506a", "#7d8f3c", "#5f7f9e", "#c68a6a", "#8f7bb8", "#6b9f7f", "#a08a7a", "#7a7f87",
];
const $ = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// ---- data ---------------------------------------------------------------------------------------------

async function bytes(name) {
  const packed = $("data-" + name).textContent;
  let raw;
  if (Uint8Array.fromBase64) raw = Uint8Array.fromBase64(packed);
  else {
    const binary = atob(packed);
    raw = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) raw[i] = binary.charCodeAt(i);
  }
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}
const text = async (name) => new TextDecoder().decode(await bytes(name));

if (typeof DecompressionStream === "undefined") {
  $("title").textContent = "This browser is too old for this report";
  $("about").textContent = "It needs DecompressionStream: Chrome 80, Firefox 113, Safari 16.4 or newer.";
  return;
}
// A mark of direction in a name would turn round the sentence that has the name, so it is shown as its code. The
// beginnings of the instructions stand alone and stay as they are.
function spelled(value) {
  if (typeof value === "string") return value.replace(/\p{Bidi_Control}/gu, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
  if (value === null || typeof value !== "object") return value;
  return Array.isArray(value) ? value.map(spelled) : Object.fromEntries(Object.entries(value).map(([name, one]) => [name, spelled(one)]));
}
const { snippets, ...rest } = JSON.parse(await text("head"));
const head = { ...spelled(rest), snippets };
const KINDS = { Int16Array, Int32Array, Float32Array, Uint8Array };
const arrays = Object.fromEntries(await Promise.all(Object.entries(head.arrays).map(
  async ([name, kind]) => [name, new KINDS[kind](await bytes(name))])));
const { series, group, scores, expected, overall, flags } = arrays;
const N = head.ids.length;
// A score is the place of a value in aspects[aspect].values; -1 where the row failed. What is unknown is NaN.
const { aspects, words } = head;

const firstRow = [0], firstInstruction = [0];
for (const [instructions, rows] of head.chunks) {
  firstRow.push(firstRow.at(-1) + rows);
  firstInstruction.push(firstInstruction.at(-1) + instructions);
}
function chunkOf(row) {
  let low = 0, high = head.chunks.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (firstRow[middle] <= row) low = middle; else high = middle - 1;
  }
  return low;
}
const kept = new Map();
function chunk(number) {
  let found = kept.get(number);
  if (found) kept.delete(number);
  else found = text("chunk-" + number).then(JSON.parse);
  kept.set(number, found);
  if (kept.size > KEPT_CHUNKS) kept.delete(kept.keys().next().value);
  return found;
}
async function rowTexts(row) {
  const number = chunkOf(row);
  const { instructions, rows } = await chunk(number);
  return read(instructions, rows, number, row);
}
function read(instructions, rows, number, row) {
  const [instruction, reference] = instructions[group[row] - firstInstruction[number]];
  const values = rows[row - firstRow[number]];
  return { row, instruction, reference, ...Object.fromEntries(FIELDS.map((name, place) => [name, values[place]])) };
}
const ofAspect = (column, aspect, row) => column[aspect * N + row];
function together(row) {  // the rows of the same instruction
  let begin = row, end = row;
  while (begin > 0 && group[begin - 1] === group[row]) begin--;
  while (end < N - 1 && group[end + 1] === group[row]) end++;
  return Array.from({ length: end - begin + 1 }, (_, place) => begin + place);
}

const count = (number) => number.toLocaleString("en");
const fixed = (number, digits = 2) => number === null || Number.isNaN(number) ? "–"
  : number.toFixed(digits).replace(/^-(?=[0.]*$)/, "");
const percent = (share, digits = 0) => share === null || Number.isNaN(share) ? "–" : `${(100 * share).toFixed(digits)}\u00a0%`;
const meanOf = (aspect, mean) => (aspects[aspect].kind === "boolean" ? percent : fixed)(mean);
const ordered = aspects.flatMap(({ kind }, aspect) => (kind === "labels" ? [] : [aspect]));
const overallText = (mean) => meanOf(ordered[0], mean);
function paint(node, colour) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  node.style.background = colour;
  node.style.color = 0.3 * red + 0.59 * green + 0.11 * blue > 125 ? "#14171a" : "#ffffff";
  return node;
}
const chip = (aspect, score, title) =>
  paint(make("i", { class: "chip", title }, aspects[aspect].values[score]), aspects[aspect].colours[score]);
function dot(index) {
  const node = make("i", { class: "dot", "aria-hidden": "true" });
  node.style.background = SYSTEM_COLOURS[index % SYSTEM_COLOURS.length];
  return node;
}
const option = (value, label) => make("option", { value }, label);

// ---- texts and probabilities ----------------------------------------------------------------------------

const CROWDED = 20;           // bars that stand without a space between them above this number
function prose(said, limit = LONG) {
  if (said === null || said === undefined) return make("p", { class: "muted" }, "The text was not found in the inputs.");
  if (said === "") return make("p", { class: "muted" }, "(empty)");
  const node = make("div", { class: "prose" });
  if (said.length <= limit * 1.2) node.textContent = said;
  else {
    // Not in the middle of a character that takes two units.
    const end = /[\ud800-\udbff]/.test(said[limit - 1]) ? limit - 1 : limit;
    const more = make("button", { type: "button", onclick: () => { node.textContent = said; } },
      `Show all ${count(said.length)} characters`);
    node.append(said.slice(0, end) + "… ", more);
  }
  return node;
}
function probabilities({ kind, values }, score, weights) {
  const said = weights.map((share, place) => `${values[place]}: ${percent(share, 1)}`);
  if (kind === "scale") {
    const bars = make("span", { class: "bars", role: "img", "aria-label": said.join(", "), title: said.join(", ") });
    weights.forEach((share, place) => {
      const bar = make("i", { class: place === score ? "given" : "" });
      bar.style.setProperty("--share", share);
      bars.append(bar);
    });
    if (weights.length > CROWDED) bars.classList.add("crowded");
    return bars;
  }
  return make("span", { class: "shares" }, ...weights.flatMap((share, place) => {
    const bar = make("i", { class: place === score ? "given" : "", "aria-hidden": "true" });
    bar.style.setProperty("--share", share);
    return [make("span", { class: "name" }, values[place]), bar, make("span", {}, percent(share))];
  }));
}
function columnsOf(each) {  // the other columns of the input
  const columns = Object.entries(each.columns ?? {}).filter(([, value]) => value !== null && JSON.stringify(value) !== "{}");
  if (!columns.length) return null;
  const listed = columns.map(([name, value]) => make("div", {}, make("dt", {}, name),
    make("dd", {}, (typeof value === "string" ? value : JSON.stringify(value)).slice(0, LONG))));
  return make("details", {}, make("summary", {}, "Columns"), make("dl", {}, ...listed));
}

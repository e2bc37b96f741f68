// How a page of pairs shows one, filters them and sorts them. The responses of a pair are a and b, in the order of
// the input; each answer of the judge calls the response that it read first A.

const FIELDS = ["responses", "error", "orders", "source", "columns"];
const ORDERS_DIFFER = 8, TIE = 1, UNDECIDED = 3;
const { agree, length } = arrays, opponent = series.subarray(N);
const label = (index) => head.series[index].label;
const sides = (row) => [series[row], opponent[row]];

// ---- filters and orders ---------------------------------------------------------------------------------

const ORDERS = [
  ["Instruction", null, false],
  ...(aspects.length > 1 ? [["Preference, all aspects", overall, true]] : []),
  ...aspects.map(({ name }, aspect) => [`Preference, ${name}`, (row) => ofAspect(expected, aspect, row), true]),
  ["Closest", (row) => Math.abs(overall[row] - 0.5), false],
  ["Difference in length", (row) => (length[row] < 0 ? NaN : Math.abs(length[row] - length[N + row])), true],
];
const STATES = [
  ["all", () => true],
  ["judged", (row) => !(flags[row] & FAILED)],
  ["failed", (row) => flags[row] & FAILED],
  ...(agree.every(Number.isNaN) ? [] : [
    ["orders differ", (row) => flags[row] & ORDERS_DIFFER],
    ["orders agree", (row) => !(flags[row] & (ORDERS_DIFFER | FAILED))],
  ]),
  ...(head.rationale ? [["rationale cut", (row) => flags[row] & RATIONALE_CUT]] : []),
  ["response cut", (row) => flags[row] & CANDIDATE_CUT],
  ["chosen for print", (row) => state.chosen.has(row)],
];
const systems = () => [option("", "all"), ...head.series.map((_, index) => option(index, label(index)))];
$("by-series").append(...systems());
$("by-series").parentNode.after(make("label", {}, "Against ", make("select", { id: "by-opponent" }, ...systems())));
if (!head.table) for (const id of ["by-series", "by-opponent"]) $(id).parentNode.style.display = "none";
$("by-aspect").append(...aspects.map(({ name }, aspect) => option(aspect, name)));
$("by-aspect").parentNode.style.display = aspects.length > 1 ? "" : "none";
$("by-score").append(option("", "any"), ...[[TIE, "tie"], [UNDECIDED, "undecided"]].flatMap(([place, name]) =>
  (scores.includes(place) ? [option(name, name)] : [])), ...systems().slice(1));
$("key-beside").remove();
const offerScores = () => {};  // the winners are the same for every aspect
const winner = (aspect, row) => [series[row], "tie", opponent[row], "undecided"][ofAspect(scores, aspect, row)];
function scoreTest() {
  const asked = $("by-score").value, aspect = +$("by-aspect").value;
  return (row) => asked === "" || String(winner(aspect, row)) === asked;
}
function systemTest() {
  const [one, other] = [$("by-series").value, $("by-opponent").value];
  const has = (row, asked) => asked === "" || sides(row).includes(+asked);
  return (row) => has(row, one) && has(row, other) && (one === "" || one !== other || series[row] === opponent[row]);
}
const searched = (each) => [...sides(each.row).map(label), ...(each.responses ?? []),
  ...each.orders.flatMap(({ texts }) => Object.values(texts ?? {}))];

// ---- a line of the list ---------------------------------------------------------------------------------

function who(row) {
  const won = flags[row] & FAILED ? null : winner(0, row);
  const side = (index) => [dot(index), make(aspects.length === 1 && won === index ? "b" : "span", {}, label(index))];
  return [...side(series[row]), make("span", { class: "muted" }, " vs "), ...side(opponent[row])];
}
function marksOf(row) {
  const chips = aspects.map(({ name, values, colours }, aspect) => {
    const won = ofAspect(scores, aspect, row);
    const said = won === TIE ? "a tie" : won === UNDECIDED ? "undecided" : `${label(winner(aspect, row))} wins`;
    const differ = ofAspect(agree, aspect, row) === 0 ? ", the orders differ" : "";
    const shown = won === TIE ? "=" : won === UNDECIDED ? "?" : values[won];
    return paint(make("i", { class: "chip", title: `${name}: ${said}${differ}` }, shown), colours[won]);
  });
  if (flags[row] & ORDERS_DIFFER) chips.push(make("span", { class: "differ", title: "the orders differ" }, "≠"));
  return [...chips, make("span", { class: "mean" }, fixed(overall[row]))];
}

// ---- a pair ---------------------------------------------------------------------------------------------

const responseName = (row, place) => `${"ab"[place]} · ${label(sides(row)[place])}`;
function verdictTable(each) {
  const headings = make("tr", {}, ...["aspect", "winner", "preference for a", "orders"].map((name) =>
    make("th", { scope: "col", class: "word" }, name)));
  const rows = aspects.map(({ name }, aspect) => {
    const won = ofAspect(scores, aspect, each.row), share = ofAspect(expected, aspect, each.row);
    const same = ofAspect(agree, aspect, each.row);
    const bar = make("i", { class: "given", "aria-hidden": "true" });
    bar.style.setProperty("--share", share);
    return make("tr", {}, make("th", { scope: "row" }, ...breakable(name)),
      make("td", { class: "word" }, chip(aspect, won), won === TIE || won === UNDECIDED ? "" : ` ${label(winner(aspect, each.row))}`),
      make("td", { class: "word" }, make("span", { class: "shares preference" }, bar, make("span", {}, fixed(share, 3)))),
      make("td", { class: "word" }, Number.isNaN(same) ? "one order" : same ? "agree" : "differ"));
  });
  return make("table", { class: "scores" }, make("thead", {}, headings), make("tbody", {}, ...rows));
}
function responseCard(each, place, limit) {
  return make("section", { class: "card", "aria-label": `Response ${"ab"[place]}` },
    make("h4", {}, dot(sides(each.row)[place]), responseName(each.row, place)), prose(each.responses?.[place], limit));
}
function orderCard(each, order, limit) {
  const names = [0, 1].map((place) => responseName(each.row, order.swapped ? 1 - place : place));
  const parts = [make("h4", {}, `Shown first: ${names[0]}`),
    make("p", { class: "muted" }, `A is ${names[0]}, B is ${names[1]}.`)];
  if (order.error) parts.push(make("p", { class: "notice" }, "Failed: " + order.error));
  else {
    const own = Object.entries(order.texts);
    const body = aspects.map(({ name, labels }) => {
      const score = order.scores[name], weights = order.probabilities?.[name];
      return make("tr", {}, make("th", { scope: "row" }, ...breakable(name)),
        make("td", { class: "word" }, labels[score]),
        make("td", { class: "word" }, weights ? probabilities({ kind: "labels", values: labels }, score, weights) : "–"));
    });
    const headings = ["aspect", "answer", "probabilities"].map((name) => make("th", { scope: "col", class: "word" }, name));
    parts.push(make("table", { class: "scores" }, make("thead", {}, make("tr", {}, ...headings)), make("tbody", {}, ...body)));
    for (const [name, said] of own) {
      const heading = name.replaceAll("_", " ");
      parts.push(make("h5", {}, heading[0].toUpperCase() + heading.slice(1)), prose(said, limit));
    }
    if (order.rationale_cut) parts.push(make("p", { class: "muted" }, "A rationale was cut at its limit."));
    if (order.candidate_cut) {
      parts.push(make("p", { class: "muted" }, `The judge did not see ${count(order.candidate_cut)} characters of the responses.`));
    }
    if (order.thoughts) parts.push(make("h5", {}, "Thoughts"), prose(order.thoughts, limit));
  }
  return make("section", { class: "card", "aria-label": `Order with ${names[0]} first` }, ...parts);
}
function body([each], limit) {
  return [
    make("h3", {}, "Instruction"), prose(each.instruction, limit),
    flags[each.row] & FAILED ? make("p", { class: "notice" }, "Failed: " + each.error) : verdictTable(each),
    each.reference === null ? null : make("div", { class: "cards" },
      make("section", { class: "card", "aria-label": "Reference" }, make("h4", {}, "Reference"), prose(each.reference, limit / 3))),
    make("div", { class: "cards pair" }, responseCard(each, 0, limit), responseCard(each, 1, limit)),
    make("div", { class: each.orders.length > 1 ? "cards pair" : "cards" },
      ...each.orders.map((order) => orderCard(each, order, limit))),
    columnsOf(each),
    make("p", { class: "muted place" }, `${head.ids[each.row]} · ${each.source}`),
  ].filter(Boolean);
}
const beside = () => [], toolsOf = () => [], nextBeside = () => {};

// ---- the matrix of the systems --------------------------------------------------------------------------

function rateCell(value) {
  if (value === null) return make("td", { class: "rate" }, "–");
  const { share, low, high, n, colour, at } = value;
  const interval = low === null ? "" : `${percent(low)} to ${percent(high)}`;
  const select = () => {
    clearTools();
    [$("by-series").value, $("by-opponent").value] = at;
    refresh();
    $("judgements").scrollIntoView();
  };
  return make("td", { class: "rate" }, paint(make("button", { type: "button", title: interval, onclick: select },
    make("span", { class: "mean" }, percent(share)), make("span", { class: "note" }, `n ${count(n)}`)), colour));
}

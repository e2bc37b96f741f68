// How the page shows a row, filters rows and sorts them. A row has one response or two, which are a and b in the order
// of the input; each answer of the judge calls the response that it read first A. Its prompts have an answer each: one,
// one for each order of two responses, or one for each of the row's criteria.

const FIELDS = ["responses", "error", "prompts", "source", "columns", "intervals", "results"];
const MOST_OFFERED = 21;      // scores of a scale that the filter offers
const ORDERS_DIFFER = 8, TIE = 1, UNDECIDED = 3;
const { confidence, agree, length, criteria } = arrays;
const compared = series.length > N;
// The values of a column for an aspect of a row: one, or one for each criterion.
const given = (column, aspect, row) => (criteria ? [...column.subarray(criteria[row], criteria[row + 1])] : [ofAspect(column, aspect, row)]);
const whole = ordered.length === 1 || head.decides === "overall";   // the mean of all ordered aspects exists
const label = (index) => head.series[index];
const knowsSystems = head.sections.systems.tables.length > 0;
const sides = (row) => (compared ? [series[row], series[N + row]] : [series[row]]);
const winner = (aspect, row) => [series[row], "tie", series[N + row], "undecided"][ofAspect(scores, aspect, row)];
const hasWinner = (won) => won !== TIE && won !== UNDECIDED;

const leastConfidence = new Float32Array(N).fill(NaN), spread = new Float32Array(N).fill(NaN);
for (let row = 0; row < N; row++) {
  const known = aspects.flatMap((_, aspect) => given(confidence, aspect, row)).filter((share) => !Number.isNaN(share));
  if (known.length) leastConfidence[row] = Math.min(...known);
}
for (let row = 0; row < N;) {
  const rows = together(row), known = rows.map((each) => overall[each]).filter((value) => !Number.isNaN(value));
  const range = known.length > 1 ? Math.max(...known) - Math.min(...known) : NaN;
  for (const each of rows) spread[each] = range;
  row += rows.length;
}

// ---- filters and orders ---------------------------------------------------------------------------------

function numberOf(aspect, row) {
  const mean = ofAspect(expected, aspect, row), score = ofAspect(scores, aspect, row);
  return score < 0 ? NaN : Number.isNaN(mean) && !compared ? aspects[aspect].lowest + score : mean;
}
const lengthOf = (row) => (length[row] < 0 ? NaN : compared ? Math.abs(length[row] - length[N + row]) : length[row]);
const prefix = compared ? "Preference, " : "";
const ORDERS = [
  ["Instruction", null, false],
  ...(compared && aspects.length > 1 ? [["Preference, all aspects", overall, true]] : []),
  ...(!compared && (head.decides === "overall" || criteria) ? [[criteria ? "Score" : "Overall score", overall, true]] : []),
  ...(criteria ? [] : aspects).map(({ name, kind }, aspect) => [prefix + name, (row) => numberOf(aspect, row), kind !== "labels"]),
  ...(compared ? [["Closest", (row) => Math.abs(overall[row] - 0.5), false]] : []),
  ...(compared || leastConfidence.every(Number.isNaN) ? [] : [["Lowest confidence", leastConfidence, false]]),
  ...(compared || !ordered.length ? [] : [["Difference between systems" + (whole ? "" : `, ${head.decides}`), spread, true]]),
  [compared ? "Difference in length" : "Length", lengthOf, true],
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
  [compared ? "response cut" : "candidate cut", (row) => flags[row] & CANDIDATE_CUT],
  ["chosen for print", (row) => state.chosen.has(row)],
];
const hide = (id) => { $(id).parentNode.style.display = "none"; };
const systems = () => [option("", "all"), ...head.series.map((_, index) => option(index, label(index)))];
$("by-series").append(...systems());
$("by-series").parentNode.after(make("label", {}, "Against ", make("select", { id: "by-opponent" }, ...systems())));
if (!compared || !knowsSystems) hide("by-opponent");
if (!knowsSystems) hide("by-series");
$("by-aspect").append(...(criteria || compared ? [] : [option("", "any")]), ...aspects.map(({ name }, aspect) => option(aspect, name)));
if (criteria || (compared && aspects.length === 1)) hide("by-aspect");
if (compared) $("key-beside").remove();
function offeredValues(aspect) {
  const { kind, values } = aspects[aspect], every = [...values.keys()];
  const found = new Set(criteria ? scores : scores.subarray(aspect * N, (aspect + 1) * N)), step = Math.ceil(values.length / MOST_OFFERED);
  const inside = kind === "scale" || kind === "ordered" ? every.slice(1, -1).filter((score) => score % step === 0) : [];
  const [lower, higher] = kind === "scale" ? ["less", "more"] : ["worse", "better"];
  return [...every.filter((score) => step === 1 || found.has(score)).map((score) => option(score, values[score])),
    ...inside.map((score) => option("<" + score, `${values[score]} or ${lower}`)),
    ...inside.map((score) => option(">" + score, `${values[score]} or ${higher}`))];
}
const offeredWinners = () => [...[[TIE, "tie"], [UNDECIDED, "undecided"]].flatMap(([place, name]) =>
  (scores.includes(place) ? [option(name, name)] : [])), ...systems().slice(1)];
function offerScores() {
  const aspect = $("by-aspect").value, select = $("by-score");
  const before = select.selectedOptions[0]?.textContent;
  select.disabled = aspect === "";
  const options = [option("", "any"), ...(aspect === "" ? [] : compared ? offeredWinners() : offeredValues(+aspect))];
  select.replaceChildren(...options);
  select.value = options.find(({ textContent }) => textContent === before)?.value ?? "";
}
function scoreTest() {
  const aspect = $("by-aspect").value, asked = $("by-score").value;
  if (aspect === "" || asked === "") return () => true;
  if (compared) return (row) => String(winner(+aspect, row)) === asked;
  const bound = Number(asked.replace(/[<>]/, ""));
  const compare = asked[0] === "<" ? (score) => score <= bound : asked[0] === ">" ? (score) => score >= bound
    : (score) => score === bound;
  return (row) => given(scores, +aspect, row).some((score) => score >= 0 && compare(score));
}
function systemTest() {
  const [one, other] = [$("by-series").value, $("by-opponent").value];
  const has = (row, asked) => asked === "" || sides(row).includes(+asked);
  return (row) => has(row, one) && has(row, other) && (one === "" || one !== other || sides(row).every((side) => side === +one));
}
const searched = (each) => [...sides(each.row).map(label), ...(each.responses ?? []), ...each.prompts.flatMap(({ texts, criterion }) =>
  [...Object.values(texts ?? {}), ...(criterion ? [criterion.name, criterion.text, ...criterion.tags] : [])])];

// ---- a line of the list ---------------------------------------------------------------------------------

function who(row) {
  const won = !compared || flags[row] & FAILED ? null : winner(0, row);
  const side = (index) => [dot(index), make(aspects.length === 1 && won === index ? "b" : "span", {}, label(index))];
  return sides(row).flatMap((index, place) => [place ? make("span", { class: "muted" }, " vs ") : null, ...side(index)]).filter(Boolean);
}
function markOf(score, points) {  // a tick for a wanted answer: met, or not met if it costs points
  const met = score === aspects[0].values.length - 1;
  return score < 0 ? "?" : score && !met ? "~" : met === points >= 0 ? "✓" : "✗";
}
function winnerChip({ name, values, colours }, aspect, row) {
  const won = ofAspect(scores, aspect, row);
  const said = won === TIE ? "a tie" : won === UNDECIDED ? "undecided" : `${label(winner(aspect, row))} wins`;
  const differ = ofAspect(agree, aspect, row) === 0 ? ", the orders differ" : "";
  const shown = won === TIE ? "=" : won === UNDECIDED ? "?" : values[won];
  return paint(make("i", { class: "chip", title: `${name}: ${said}${differ}` }, shown), colours[won]);
}
function marksOf(row) {
  if (criteria) {
    const found = given(scores, 0, row), met = found.filter((score) => score === aspects[0].values.length - 1).length;
    return [`${met} of ${found.length} met`, make("span", { class: "mean", title: "score" }, fixed(overall[row]))];
  }
  const chips = aspects.map((aspect, place) => {
    const score = ofAspect(scores, place, row);
    return compared ? winnerChip(aspect, place, row) : chip(place, score, `${aspect.name}: ${aspect.values[score]}`);
  });
  if (flags[row] & ORDERS_DIFFER) chips.push(make("span", { class: "differ", title: "the orders differ" }, "≠"));
  if (compared) return [...chips, make("span", { class: "mean" }, fixed(overall[row]))];
  return whole ? [...chips, make("span", { class: "mean", title: head.decides }, overallText(overall[row]))] : chips;
}

// ---- the answers ----------------------------------------------------------------------------------------

const cellsOf = (...cells) => make("tr", {}, ...cells.filter((each) => each !== null));
const heading = (name, kind) => make("th", { scope: "col", class: kind }, name);
const named = (name) => make("th", { scope: "row" }, ...breakable(name));
const word = (...shown) => make("td", { class: "word" }, ...shown);
const tableOf = (headings, rows, kind = "scores") =>
  make("table", { class: kind }, make("thead", {}, cellsOf(...headings)), make("tbody", {}, ...rows.filter(Boolean)));
function intervalOf({ values, lowest }, ends) {
  if (!ends) return "–";
  const bar = make("i", { class: "interval", "aria-hidden": "true" });
  bar.style.setProperty("--from", (ends[0] - lowest) / (values.length - 1));
  bar.style.setProperty("--to", (ends[1] - lowest) / (values.length - 1));
  return make("span", {}, bar, ` ${ends[0]} to ${ends[1]}`);
}
function scoreTable(each, prompt, limit) {
  const means = aspects.map((_, aspect) => (compared ? NaN : ofAspect(expected, aspect, each.row)));
  const [first] = aspects;
  // The expected score of a boolean is among its probabilities.
  const withMeans = aspects.some(({ kind }, aspect) => kind !== "boolean" && !Number.isNaN(means[aspect]));
  const same = aspects.every(({ kind, values }) => kind === "scale" && values.join() === first.values.join());
  const headings = [heading("aspect", "word"), heading(compared ? "answer" : "score", "word"), withMeans ? heading("expected") : null,
    each.intervals ? heading("interval", "word") : null,
    prompt.probabilities ? heading(same ? `probability of ${first.values[0]} to ${first.values.at(-1)}` : "probabilities", "word") : null];
  const rows = aspects.flatMap((aspect, place) => {
    const score = prompt.scores[aspect.name], weights = prompt.probabilities?.[aspect.name];
    const shown = compared ? { kind: "labels", values: aspect.labels } : aspect;
    const own = prompt.texts[`${aspect.name}_rationale`];
    const row = cellsOf(named(aspect.name), word(compared ? aspect.labels[score] : chip(place, score)),
      withMeans ? make("td", {}, meanOf(place, means[place])) : null,
      each.intervals ? word(intervalOf(aspect, each.intervals[aspect.name])) : null,
      prompt.probabilities ? word(weights ? probabilities(shown, score, weights) : "–") : null);
    if (own) row.className = "reasoned";
    return [row, own ? make("tr", {}, make("td", { class: "word", colspan: row.children.length }, prose(own, limit))) : null];
  });
  return tableOf(headings, rows);
}
function answerOf(each, prompt, limit) {  // the judge's answer to one prompt
  if (prompt.error) return [make("p", { class: "notice" }, "Failed: " + prompt.error)];
  const own = aspects.map(({ name }) => `${name}_rationale`);
  const texts = Object.entries(prompt.texts).filter(([name]) => !own.includes(name));
  const parts = [scoreTable(each, prompt, limit)];
  for (const [name, said] of texts) {
    const title = name.replaceAll("_", " ");
    parts.push(make("h5", {}, title[0].toUpperCase() + title.slice(1)), prose(said, limit));
  }
  if (prompt.rationale_cut) parts.push(make("p", { class: "muted" }, "A rationale was cut at its limit."));
  if (prompt.candidate_cut) {
    parts.push(make("p", { class: "muted" },
      `The judge did not see ${count(prompt.candidate_cut)} characters of the ${compared ? "responses" : "candidate, or of the conversation before it"}.`));
  }
  if (prompt.thoughts) parts.push(make("h5", {}, "Thoughts"), prose(prompt.thoughts, limit));
  return parts;
}
function criteriaTable({ row, prompts, results }, limit) {
  const [{ name: aspect, values }] = aspects, known = prompts.some(({ probabilities: shares }) => shares);
  const rows = prompts.flatMap(({ criterion: { name, text, tags, points }, error, probabilities: shares, texts }, place) => {
    const score = given(scores, 0, row)[place];
    const below = [...(error ? [make("p", { class: "notice" }, "Failed: " + error)] : []), ...Object.values(texts ?? {}).map((said) => prose(said, limit))];
    return [make("tr", { class: below.length ? "reasoned" : "" },
      make("td", { class: "mark" }, markOf(score, points)), make("td", {}, String(points)),
      make("th", { scope: "row" }, name ? `${name}: ` : "", text, tags.length ? make("span", { class: "note" }, tags.join(", ")) : null),
      word(values[score] ?? "–"), known ? make("td", {}, fixed(shares?.[aspect].at(-1) ?? null)) : null),
    below.length ? make("tr", {}, make("td", { class: "word", colspan: known ? 5 : 4 }, ...below)) : null];
  });
  return [tableOf([heading("", "word"), heading("points"), heading("criterion", "word"), heading(aspect, "word"),
    known ? heading(`probability of ${values.at(-1)}`) : null], rows, "scores criteria"),
  ...results.map((said) => make("p", { class: "points" }, said))];
}
function verdictTable({ row }) {
  const rows = aspects.map(({ name }, aspect) => {
    const won = ofAspect(scores, aspect, row), share = ofAspect(expected, aspect, row), same = ofAspect(agree, aspect, row);
    const bar = make("i", { class: "given", "aria-hidden": "true" });
    bar.style.setProperty("--share", share);
    return cellsOf(named(name), word(chip(aspect, won), hasWinner(won) ? ` ${label(winner(aspect, row))}` : ""),
      word(make("span", { class: "shares preference" }, bar, make("span", {}, fixed(share, 3)))),
      word(Number.isNaN(same) ? "one order" : same ? "agree" : "differ"));
  });
  return tableOf(["aspect", "winner", "probability that a is better", "orders"].map((name) => heading(name, "word")), rows);
}

// ---- a row ----------------------------------------------------------------------------------------------

const responseName = (row, place) => (compared ? `${"ab"[place]} · ${label(sides(row)[place])}` : label(series[row]));
const card = (name, ...parts) => make("section", { class: "card", "aria-label": name }, ...parts);
const placeOf = (each) => [columnsOf(each), make("p", { class: "muted place" }, `${head.ids[each.row]} · ${each.source}`)];
function responseCard(each, limit) {  // the answers about a response, and the response
  const name = responseName(each.row, 0), [prompt] = each.prompts;
  const cut = Math.max(0, ...each.prompts.map(({ candidate_cut: hidden }) => hidden ?? 0));
  return card(name, make("h4", {}, dot(series[each.row]), name),
    ...(prompt.criterion ? criteriaTable(each, limit) : answerOf(each, prompt, limit)),
    make("h5", {}, "Candidate"), prose(each.responses?.[0], limit),
    prompt.criterion && cut ? make("p", { class: "muted" }, `The judge did not see ${count(cut)} characters of it, or of the conversation before it.`) : null,
    ...placeOf(each));
}
function orderCard(each, prompt, limit) {
  const names = [0, 1].map((place) => responseName(each.row, prompt.swapped ? 1 - place : place));
  return card(`Order with ${names[0]} first`, make("h4", {}, `Shown first: ${names[0]}`),
    make("p", { class: "muted" }, `A is ${names[0]}, B is ${names[1]}.`), ...answerOf(each, prompt, limit));
}
function body(shown, limit) {
  const [each] = shown, { instruction, reference } = each, several = shown.length > 1;
  const referenceCard = reference === null && instruction !== null ? null
    : card("Reference", make("h4", {}, "Reference"), prose(reference, several || compared ? limit / 3 : limit));
  if (referenceCard) referenceCard.classList.add("reference");
  const top = [make("h3", {}, "Instruction"), prose(instruction, limit)];
  if (!compared) return [...top, make("div", { class: several ? "cards pair" : "cards" }, referenceCard, ...shown.map((one) => responseCard(one, limit)))];
  const responses = [0, 1].map((place) => card(`Response ${"ab"[place]}`, make("h4", {}, dot(sides(each.row)[place]),
    responseName(each.row, place)), prose(each.responses?.[place], limit)));
  return [...top, flags[each.row] & FAILED ? make("p", { class: "notice" }, "Failed: " + each.error) : verdictTable(each),
    referenceCard && make("div", { class: "cards" }, referenceCard), make("div", { class: "cards pair" }, ...responses),
    make("div", { class: each.prompts.length > 1 ? "cards pair" : "cards" }, ...each.prompts.map((prompt) => orderCard(each, prompt, limit))),
    ...placeOf(each)].filter(Boolean);
}

// ---- another system's answer beside it ------------------------------------------------------------------

let besideSeries = -1;
const others = (row) => (compared ? [] : together(row).filter((other) => other !== row));
const beside = (row) => others(row).filter((other) => series[other] === besideSeries).slice(0, 1);
function toolsOf(row) {
  if (compared) return [];
  const choice = make("select", { id: "beside", onchange: (event) => {
    besideSeries = event.target.value === "" ? -1 : series[+event.target.value];
    paintDetail().then(() => $("beside").focus());
  } }, option("", "nothing"), ...others(row).map((other) => option(other, label(series[other]))));
  choice.value = beside(row)[0] ?? "";
  return [make("label", {}, "Beside it ", choice)];
}
function nextBeside() {
  const row = state.rows[state.at];
  if (row === undefined || compared) return;
  const rest = others(row), at = rest.findIndex((other) => series[other] === besideSeries);
  besideSeries = at + 1 < rest.length ? series[rest[at + 1]] : -1;
  paintDetail();
}

// How a page of judgements, or of rows with criteria, shows one, filters them and sorts them.

const FIELDS = ["candidate", "rationale", "error", "thoughts", "probabilities", "source", "cut", "columns", "rationales", "intervals", "criteria", "points"];
const MOST_OFFERED = 21;      // scores of a scale that the filter offers
const { confidence, length, criteria } = arrays;
// What the judge gave a row for an aspect: one value, or one for each criterion.
const given = (column, aspect, row) => (criteria ? [...column.subarray(criteria[row], criteria[row + 1])] : [ofAspect(column, aspect, row)]);
const whole = ordered.length === 1 || head.decides === "overall";   // the mean of all ordered aspects exists

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

const ORDERS = [
  ["Instruction", null, false],
  ...(head.decides === "overall" || criteria ? [[criteria ? "Score" : "Overall score", overall, true]] : []),
  ...(criteria ? [] : aspects).map(({ name, kind, lowest }, aspect) => [name, (row) => {
    const mean = ofAspect(expected, aspect, row), score = ofAspect(scores, aspect, row);
    return score < 0 ? NaN : Number.isNaN(mean) ? lowest + score : mean;
  }, kind !== "labels"]),
  ...(leastConfidence.every(Number.isNaN) ? [] : [["Lowest confidence", leastConfidence, false]]),
  ...(ordered.length ? [["Difference between systems" + (whole ? "" : `, ${head.decides}`), spread, true]] : []),
  ["Length", (row) => (length[row] < 0 ? NaN : length[row]), true],
];
const STATES = [
  ["all", () => true],
  ["judged", (row) => !(flags[row] & FAILED)],
  ["failed", (row) => flags[row] & FAILED],
  ...(head.rationale ? [["rationale cut", (row) => flags[row] & RATIONALE_CUT]] : []),
  ["candidate cut", (row) => flags[row] & CANDIDATE_CUT],
  ["chosen for print", (row) => state.chosen.has(row)],
];
$("by-series").append(option("", "all"), ...head.series.map(({ label }, index) => option(index, label)));
$("by-aspect").append(...(criteria ? [] : [option("", "any")]), ...aspects.map(({ name }, aspect) => option(aspect, name)));
$("by-aspect").parentNode.style.display = criteria ? "none" : "";
function offerScores(chosen) {
  const aspect = $("by-aspect").value, select = $("by-score"), options = [option("", "any")];
  const before = select.selectedOptions[0]?.textContent;
  select.disabled = aspect === "";
  if (aspect !== "") {
    const { kind, values } = aspects[aspect], every = [...values.keys()];
    const found = new Set(criteria ? scores : scores.subarray(aspect * N, (aspect + 1) * N)), step = Math.ceil(values.length / MOST_OFFERED);
    const inside = kind === "scale" || kind === "ordered" ? every.slice(1, -1).filter((score) => score % step === 0) : [];
    const [lower, higher] = kind === "scale" ? ["less", "more"] : ["worse", "better"];
    options.push(...every.filter((score) => step === 1 || found.has(score)).map((score) => option(score, values[score])));
    options.push(...inside.map((score) => option("<" + score, `${values[score]} or ${lower}`)));
    options.push(...inside.map((score) => option(">" + score, `${values[score]} or ${higher}`)));
  }
  select.replaceChildren(...options);
  select.value = chosen ?? options.find(({ textContent }) => textContent === before)?.value ?? "";
}

function scoreTest() {
  const aspect = $("by-aspect").value, asked = $("by-score").value;
  if (aspect === "" || asked === "") return () => true;
  const bound = Number(asked.replace(/[<>]/, ""));
  const compare = asked[0] === "<" ? (score) => score <= bound : asked[0] === ">" ? (score) => score >= bound
    : (score) => score === bound;
  return (row) => given(scores, +aspect, row).some((score) => score >= 0 && compare(score));
}
function systemTest() {
  const asked = $("by-series").value;
  return (row) => asked === "" || series[row] === +asked;
}
const searched = (each) => [head.series[series[each.row]].label, each.candidate, each.rationale,
  ...Object.values(each.rationales ?? {}), ...(each.criteria ?? []).flatMap(({ name, text, tags, texts }) => [name, text, ...tags, ...texts])];

// ---- a line of the list ---------------------------------------------------------------------------------

const who = (row) => [dot(series[row]), head.series[series[row]].label];
const MOST_MARKS = 16;        // criteria that the list shows as marks; of more, it says how many are met
function markOf(score) {
  return score < 0 ? "?" : score === aspects[0].values.length - 1 ? "✓" : score ? "~" : "✗";
}
function marksOf(row) {
  if (criteria) {
    const marks = given(scores, 0, row).map(markOf), met = marks.filter((mark) => mark === "✓").length;
    return [make("span", { title: `${met} of ${marks.length} criteria are met` },
      marks.length > MOST_MARKS ? `${met} of ${marks.length}` : marks.join("")), make("span", { class: "mean", title: "score" }, fixed(overall[row]))];
  }
  const chips = aspects.map(({ name, values }, aspect) => {
    const score = ofAspect(scores, aspect, row);
    return chip(aspect, score, `${name}: ${values[score]}`);
  });
  return whole ? [...chips, make("span", { class: "mean", title: head.decides }, overallText(overall[row]))] : chips;
}

// ---- a judgement ----------------------------------------------------------------------------------------

function intervalOf({ values, lowest }, ends) {
  if (!ends) return "–";
  const bar = make("i", { class: "interval", "aria-hidden": "true" });
  bar.style.setProperty("--from", (ends[0] - lowest) / (values.length - 1));
  bar.style.setProperty("--to", (ends[1] - lowest) / (values.length - 1));
  return make("span", {}, bar, ` ${ends[0]} to ${ends[1]}`);
}
function scoreTable(each, limit) {
  const means = aspects.map((_, aspect) => ofAspect(expected, aspect, each.row));
  const [first] = aspects;
  // The expected score of a boolean is among its probabilities.
  const withMeans = aspects.some(({ kind }, aspect) => kind !== "boolean" && !Number.isNaN(means[aspect]));
  const same = aspects.every(({ kind, values }) => kind === "scale" && values.join() === first.values.join());
  const headings = make("tr", {}, make("th", { scope: "col", class: "word" }, "aspect"),
    make("th", { scope: "col", class: "word" }, "score"), withMeans ? make("th", { scope: "col" }, "expected") : null,
    each.intervals ? make("th", { scope: "col", class: "word" }, "interval") : null,
    each.probabilities ? make("th", { scope: "col", class: "word" },
      same ? `probability of ${first.values[0]} to ${first.values.at(-1)}` : "probabilities") : null);
  const body = make("tbody");
  aspects.forEach((aspect, place) => {
    const score = ofAspect(scores, place, each.row), weights = each.probabilities?.[aspect.name];
    const own = each.rationales?.[aspect.name];
    body.append(make("tr", { class: own ? "reasoned" : "" }, make("th", { scope: "row" }, ...breakable(aspect.name)),
      make("td", { class: "word" }, chip(place, score)),
      withMeans ? make("td", {}, meanOf(place, means[place])) : null,
      each.intervals ? make("td", { class: "word" }, intervalOf(aspect, each.intervals[aspect.name])) : null,
      each.probabilities ? make("td", { class: "word" }, weights ? probabilities(aspect, score, weights) : "–") : null));
    if (own) body.append(make("tr", {}, make("td", { class: "word", colspan: headings.children.length }, prose(own, limit))));
  });
  return make("table", { class: "scores" }, make("thead", {}, headings), body);
}
function criteriaTable({ row, criteria: asked, points }, limit) {
  const heading = (name, kind) => make("th", { scope: "col", class: kind }, name);
  const known = asked.some(({ probability }) => probability !== null);
  const rows = asked.flatMap(({ name, text, tags, points: worth, probability, error, texts }, place) => {
    const score = given(scores, 0, row)[place];
    const below = [...(error ? [make("p", { class: "notice" }, "Failed: " + error)] : []), ...texts.map((said) => prose(said, limit))];
    return [make("tr", { class: below.length ? "reasoned" : "" },
      make("td", { class: "mark" }, markOf(score)), make("td", {}, String(worth).replace("-", "−")),
      make("th", { scope: "row" }, name ? `${name}: ` : "", text, tags.length ? make("span", { class: "note" }, tags.join(", ")) : null),
      make("td", { class: "word" }, aspects[0].values[score] ?? "–"), known ? make("td", {}, fixed(probability)) : null),
    below.length ? make("tr", {}, make("td", { class: "word", colspan: known ? 5 : 4 }, ...below)) : null];
  });
  return [make("table", { class: "scores criteria" },
    make("thead", {}, make("tr", {}, heading("", "word"), heading("points"), heading("criterion", "word"), heading(aspects[0].name, "word"),
      known ? heading("probability") : null)), make("tbody", {}, ...rows.filter(Boolean))),
  make("dl", { class: "points" }, ...points.map(([name, said]) => make("div", {}, make("dt", {}, name), make("dd", {}, said))))];
}
function card(each, limit) {
  const title = make("h4", {}, dot(series[each.row]), head.series[series[each.row]].label);
  const failed = flags[each.row] & FAILED;
  const parts = [title];
  if (each.criteria?.length) parts.push(...criteriaTable(each, limit));
  else if (failed) parts.push(make("p", { class: "notice" }, "Failed: " + each.error));
  else {
    parts.push(scoreTable(each, limit));
    if (each.rationale) parts.push(make("h5", {}, "Rationale"), prose(each.rationale, limit));
    if (flags[each.row] & RATIONALE_CUT) {
      parts.push(make("p", { class: "muted" }, `${each.rationales ? "A" : "The"} rationale was cut at its limit.`));
    }
    if (each.thoughts) parts.push(make("h5", {}, "Thoughts"), prose(each.thoughts, limit));
  }
  parts.push(make("h5", {}, "Candidate"), prose(each.candidate, limit));
  if (each.cut) parts.push(make("p", { class: "muted" }, `The judge did not see ${count(each.cut)} characters of it, or of the conversation before it.`));
  parts.push(columnsOf(each));
  parts.push(make("p", { class: "muted place" }, `${head.ids[each.row]} · ${each.source}`));
  return make("section", { class: "card", "aria-label": head.series[series[each.row]].label }, ...parts);
}
function body(shown, limit) {
  const { instruction, reference } = shown[0], several = shown.length > 1;
  return [
    make("h3", {}, "Instruction"), prose(instruction, limit),
    make("div", { class: several ? "cards pair" : "cards" },
      reference === null && instruction !== null ? null
        : make("section", { class: "card reference", "aria-label": "Reference" }, make("h4", {}, "Reference"),
          prose(reference, several ? limit / 3 : limit)),
      ...shown.map((each) => card(each, limit))),
  ];
}

// ---- another system's answer beside it ------------------------------------------------------------------

let besideSeries = -1;
const others = (row) => together(row).filter((other) => other !== row);
const beside = (row) => others(row).filter((other) => series[other] === besideSeries).slice(0, 1);
function toolsOf(row) {
  const choice = make("select", { id: "beside", onchange: (event) => {
    besideSeries = event.target.value === "" ? -1 : series[+event.target.value];
    paintDetail().then(() => $("beside").focus());
  } }, option("", "nothing"), ...others(row).map((other) => option(other, head.series[series[other]].label)));
  choice.value = beside(row)[0] ?? "";
  return [make("label", {}, "Beside it ", choice)];
}
function nextBeside() {
  const row = state.rows[state.at];
  if (row === undefined) return;
  const rest = others(row), at = rest.findIndex((other) => series[other] === besideSeries);
  besideSeries = at + 1 < rest.length ? series[rest[at + 1]] : -1;
  paintDetail();
}

// The search, the filters and the order of the list.

const MOST_OFFERED = 21;      // scores of a scale that the filter offers
const state = { rows: [], at: -1, beside: -1, turn: 0, shown: 0, chosen: new Map() };
const ORDERS = [
  ["Instruction", null, false],
  ...(ordered.length > 1 ? [["Overall score", overall, true]] : []),
  ...aspects.map(({ name, kind, lowest }, aspect) => [name, (row) => {
    const mean = ofAspect(expected, aspect, row), score = ofAspect(scores, aspect, row);
    return score < 0 ? NaN : Number.isNaN(mean) ? lowest + score : mean;
  }, kind !== "labels"]),
  ...(leastConfidence.every(Number.isNaN) ? [] : [["Lowest confidence", leastConfidence, false]]),
  ...(ordered.length ? [["Difference between systems", spread, true]] : []),
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
const option = (value, label) => make("option", { value }, label);
$("by-series").append(option("", "all"), ...head.series.map(({ label }, index) => option(index, label)));
$("by-aspect").append(option("", "any"), ...aspects.map(({ name }, aspect) => option(aspect, name)));
$("by-state").append(...STATES.map(([label], index) => option(index, label)));
$("by-order").append(...ORDERS.map(([label], index) => option(index, label)));
function offerScores(chosen) {
  const aspect = $("by-aspect").value, select = $("by-score"), options = [option("", "any")];
  const before = select.selectedOptions[0]?.textContent;
  select.disabled = aspect === "";
  if (aspect !== "") {
    const { kind, values } = aspects[aspect], every = [...values.keys()];
    const found = new Set(scores.subarray(aspect * N, (aspect + 1) * N)), step = Math.ceil(values.length / MOST_OFFERED);
    const inside = kind === "scale" || kind === "ordered" ? every.slice(1, -1).filter((score) => score % step === 0) : [];
    const [lower, higher] = kind === "scale" ? ["less", "more"] : ["worse", "better"];
    options.push(...every.filter((score) => step === 1 || found.has(score)).map((score) => option(score, values[score])));
    options.push(...inside.map((score) => option("<" + score, `${values[score]} or ${lower}`)));
    options.push(...inside.map((score) => option(">" + score, `${values[score]} or ${higher}`)));
  }
  select.replaceChildren(...options);
  select.value = chosen ?? options.find(({ textContent }) => textContent === before)?.value ?? "";
}
offerScores();

function scoreTest() {
  const aspect = $("by-aspect").value, asked = $("by-score").value;
  if (aspect === "" || asked === "") return () => true;
  const bound = Number(asked.replace(/[<>]/, ""));
  const compare = asked[0] === "<" ? (score) => score <= bound : asked[0] === ">" ? (score) => score >= bound
    : (score) => score === bound;
  return (row) => ofAspect(scores, +aspect, row) >= 0 && compare(ofAspect(scores, +aspect, row));
}
function sorted(rows) {
  const [, key] = ORDERS[$("by-order").selectedIndex];
  const descending = $("direction").getAttribute("aria-pressed") === "true";
  if (!key) return descending ? rows.toReversed?.() ?? [...rows].reverse() : rows;
  const value = typeof key === "function" ? key : (row) => key[row];
  const known = [], unknown = [];
  for (const row of rows) (Number.isNaN(value(row)) ? unknown : known).push(row);
  known.sort((one, other) => (descending ? value(other) - value(one) : value(one) - value(other)) || one - other);
  return [...known, ...unknown];
}
async function refresh() {
  const turn = ++state.turn, before = state.rows[state.at];
  const inSeries = $("by-series").value, words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const ofState = STATES[$("by-state").selectedIndex][1], ofScore = scoreTest();
  const rows = [];
  for (let row = 0; row < N; row++) {
    if ((inSeries === "" || series[row] === +inSeries) && ofState(row) && ofScore(row)) rows.push(row);
  }
  if (!words.length) return settle(sorted(rows), before, "");
  const found = [];
  let looked = 0, painted = performance.now();
  for (let place = 0; place < rows.length;) {
    const number = chunkOf(rows[place]), { instructions, rows: texts } = await chunk(number);
    if (turn !== state.turn) return undefined;
    for (; place < rows.length && rows[place] < firstRow[number + 1]; place++) {
      const each = read(instructions, texts, number, rows[place]);
      const said = [head.ids[each.row], head.series[series[each.row]].label, each.instruction, each.reference,
        each.candidate, each.rationale, each.error, ...Object.values(each.rationales ?? {})].join("\n").toLowerCase();
      if (words.every((word) => said.includes(word))) found.push(each.row);
      looked++;
    }
    if (performance.now() - painted > 80) {
      settle(found.slice(), before, `, ${Math.floor(100 * looked / rows.length)} % searched`);
      await new Promise((done) => setTimeout(done));
      if (turn !== state.turn) return undefined;
      painted = performance.now();
    }
  }
  return settle(sorted(found), before, "");
}
function settle(rows, before, more) {
  state.rows = rows;
  $("status").textContent = rows.length || more
    ? `${count(rows.length)} of ${count(N)} judgements${more}` : "No judgement matches. Clear a filter, or search for fewer words.";
  $("spacer").style.height = rows.length * ROW + "px";
  const at = rows.indexOf(before);
  if (at < 0) $("list").scrollTop = 0;
  choose(at >= 0 ? at : rows.length ? 0 : -1);
}

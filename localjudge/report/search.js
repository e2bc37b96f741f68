// The search, the filters and the order of the list.

const state = { rows: [], at: -1, turn: 0, shown: 0, chosen: new Map() };
$("by-state").append(...STATES.map(([label], index) => option(index, label)));
$("by-order").append(...ORDERS.map(([label], index) => option(index, label)));
offerScores();

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
  const wanted = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const ofState = STATES[$("by-state").selectedIndex][1], ofSystems = systemTest(), ofScore = scoreTest();
  const rows = [];
  for (let row = 0; row < N; row++) {
    if (ofSystems(row) && ofState(row) && ofScore(row)) rows.push(row);
  }
  if (!wanted.length) return settle(sorted(rows), before, "");
  const found = [];
  let looked = 0, painted = performance.now();
  for (let place = 0; place < rows.length;) {
    const number = chunkOf(rows[place]), { instructions, rows: texts } = await chunk(number);
    if (turn !== state.turn) return undefined;
    for (; place < rows.length && rows[place] < firstRow[number + 1]; place++) {
      const each = read(instructions, texts, number, rows[place]);
      const said = [head.ids[each.row], each.instruction, each.reference, each.error, ...searched(each)];
      const text = said.join("\n").toLowerCase();
      if (wanted.every((word) => text.includes(word))) found.push(each.row);
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
    ? `${count(rows.length)} of ${count(N)} ${words.many}${more}` : `No ${words.one} matches. Clear a filter, or search for fewer words.`;
  $("spacer").style.height = rows.length * ROW + "px";
  const at = rows.indexOf(before);
  if (at < 0) $("list").scrollTop = 0;
  choose(at >= 0 ? at : rows.length ? 0 : -1);
}

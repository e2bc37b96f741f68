// Everything above the judgements: tables and notices.

// ---- tables ---------------------------------------------------------------------------------------------

const breakable = (name) => name.split(/(?<=[=_])/).flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
function cell(value, kind, ends) {  // a number, an estimate with its interval, or words
  if (kind === "text") return make("th", { scope: "row" }, ...breakable(value));
  if (kind === "word") return make("td", { class: "word" }, value ?? "–");
  if (value === null || typeof value !== "object") return make("td", {}, value === null ? "–" : String(value));
  const { low, high } = value, node = make("td", { class: "figure" }, make("span", { class: "mean" }, fixed(value.value)));
  if (low !== null || high !== null) {
    node.append(make("span", { class: "interval" }, high === null ? `≥\u00a0${fixed(low)}`
      : low === null ? `≤\u00a0${fixed(high)}` : `${fixed(low)}\u00a0to ${fixed(high)}`));
  }
  if (ends) node.append(strip(value, ends));
  return node;
}
function strip({ value, low, high }, [from, to]) {  // an interval as a bar, and its value, hollow without an interval
  const place = (number) => `${100 * (number - from) / (to - from)}%`, node = make("span", { class: "strip", "aria-hidden": "true" });
  const draw = (name, left, right) => {
    const part = make("i", { class: name });
    part.style.left = place(left);
    if (right !== undefined) part.style.width = `calc(${place(right)} - ${place(left)})`;
    node.append(part);
  };
  if (from < 0 && to > 0) draw("zero", 0);
  if (low !== null || high !== null) draw("bar", low ?? from, high ?? to);
  draw(low !== null || high !== null ? "mark" : "mark hollow", value);
  return node;
}
function endsOf(values) {  // the ends of all intervals of a column, so that one can compare them
  const estimates = values.filter((value) => value !== null && typeof value === "object");
  const known = estimates.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]);
  const ends = [Math.min(...known), Math.max(...known)];
  return estimates.some(({ low, high }) => low !== null || high !== null) && ends[0] < ends[1] ? ends : null;
}
function rowOf(id, system) {  // the first row with an id and a system, whose label can end in the name of its run
  const rows = [...head.ids.keys()].filter((row) => head.ids[row] === id), names = system.split(" over ");
  const isOf = (row) => sides(row).every((index) => {
    const label = head.series[index];
    return names.some((name) => label === name || label.startsWith(`${name} · `));
  });
  return rows.find(isOf) ?? rows[0] ?? -1;
}
function fillTable(table, { caption, columns, rows }) {
  if (caption) table.append(make("caption", {}, caption));
  const headings = columns.map(({ name, kind }) => make("th", { scope: "col", class: kind === "number" ? "" : "word" }, ...breakable(name)));
  table.append(make("thead", {}, make("tr", {}, ...headings)));
  const isOfSystems = columns[0].name === "system";
  const ends = columns.map((_, column) => endsOf(rows.map((row) => row[column])));
  const body = rows.map((row) => {
    const cells = row.map((value, column) => cell(value, columns[column].kind, ends[column]));
    const index = isOfSystems ? head.series.indexOf(row[0]) : -1;
    if (index >= 0) cells[0].prepend(dot(index));
    const listed = columns[0].name === "row" ? rowOf(row[0], row[1]) : -1;
    const read = (event) => { event.preventDefault(); show([listed]); };
    if (listed >= 0) cells[0].replaceChildren(make("a", { href: "#judgements", onclick: read }, row[0]));
    return make("tr", {}, ...cells);
  });
  table.append(make("tbody", {}, ...body));
}
function showTables(section, { leads, tables, notes }) {
  $(section).hidden = false;
  const body = $(section + "-body");
  for (const lead of tables.length ? [] : $(section).querySelectorAll(":scope > .lead")) lead.remove();
  if (leads.length) $("h-" + section).after(make("p", { class: "verdict" }, leads[0]));
  for (const lead of leads.slice(1)) body.append(make("p", { class: "lead" }, lead));
  for (const one of tables) {
    const table = make("table");
    fillTable(table, one.folded ? { ...one, caption: null } : one);
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": one.caption }, table);
    const parts = [scroll, ...one.notes.map((note) => make("p", { class: "lead" }, note))];
    body.append(...(one.folded ? [make("details", {}, make("summary", {}, one.caption), ...parts)] : parts));
  }
  for (const note of notes) body.append(make("p", { class: "lead" }, note));
}

// ---- the head of the page -------------------------------------------------------------------------------

document.title = head.title;
$("title").textContent = head.title;
$("about").textContent = head.about;
$("foot").textContent = head.foot;
for (const notice of head.notices) $("notices").append(make("p", { class: "notice" }, notice));
document.body.dataset.kind = aspects[0].kind === "pair" ? "pairs" : "scores";
for (const [section, found] of Object.entries(head.sections)) if (found) showTables(section, found);
function profileOf(index, { values, colours }, aspect) {  // a bar with the share of each score of a system
  const counts = values.map(() => 0);
  for (let row = 0; row < N; row++) {
    if (series[row] === index) for (const score of given(scores, aspect, row)) if (score >= 0) counts[score]++;
  }
  const total = counts.reduce((sum, one) => sum + one, 0), most = counts.indexOf(Math.max(...counts));
  const said = values.map((value, score) => `${value}: ${percent(counts[score] / total)}`);
  const parts = counts.map((number, score) => paint(make("i"), colours[score]));
  parts.forEach((part, score) => { part.style.flexGrow = counts[score]; });
  return make("td", { class: "figure" }, make("span", { class: "interval" }, total ? said[most] : "–"),
    make("span", { class: "profile", role: "img", "aria-label": said.join(", "), title: said.join(", ") }, ...parts));
}
if (!compared) {  // of pairs, the table of the systems has their win rates
  $("profile").hidden = false;
  const headings = aspects.map(({ name }) => make("th", { scope: "col" }, ...breakable(name)));
  const body = head.series.map((name, index) => make("tr", {}, make("th", { scope: "row" }, dot(index), ...breakable(name)),
    ...aspects.map((one, aspect) => profileOf(index, one, aspect))));
  $("profile-table").append(make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "word" }, "system"), ...headings)), make("tbody", {}, ...body));
}
for (const section of document.querySelectorAll("main > section")) {
  const heading = section.querySelector("h2");
  if (heading && !section.hidden) $("nav").append(make("a", { href: "#" + section.id }, heading.textContent));
}
async function show(rows) {
  clearTools();
  await refresh();
  choose(state.rows.indexOf(rows[0]), "open");
  $("judgements").scrollIntoView();
}

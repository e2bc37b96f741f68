// Everything above the judgements: tables and notices.

// ---- tables ---------------------------------------------------------------------------------------------

const breakable = (name) => name.split(/(?<=[=_])/).flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
function cell(value, kind, axis) {  // a number, an estimate with its interval, or words
  if (kind === "text") return make("th", { scope: "row" }, ...breakable(value));
  if (kind === "word") return make("td", { class: "word" }, value ?? "–");
  if (value === null || typeof value !== "object") return make("td", {}, value === null ? "–" : typeof value === "number" ? count(value) : value);
  const { low, high } = value, node = make("td", { class: "figure" }, make("span", { class: "mean" }, fixed(value.value)));
  if (low !== null || high !== null) {
    node.append(make("span", { class: "interval" }, high === null ? `≥\u00a0${fixed(low)}`
      : low === null ? `≤\u00a0${fixed(high)}` : `${fixed(low)}\u00a0to ${fixed(high)}`));
  } else if (axis) node.append(make("span", { class: "interval" }, "no interval"));
  if (axis) node.append(strip(value, axis.ends));
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
function scaleOf(name) {  // the lowest and the highest number of a column of scores; of another column, nothing
  const { lowest, values } = name.includes("=") ? { lowest: 0, values: "01" }
    : aspects[name === "overall" ? ordered[0] : aspects.findIndex((one) => one.name === name)] ?? {};
  return values && [lowest, lowest + values.length - 1].join();
}
function axesOf(columns, rows) {  // the bars of numbers of one kind run from the lowest end to the highest, in all columns
  const named = columns.flatMap(({ name }, place) => (["column", "of"].includes(name) ? [place] : []));
  const estimates = rows.flatMap((row) => row.flatMap((value, place) => {
    if (value === null || typeof value !== "object") return [];
    const { name, apart } = columns[place], of = named.map((other) => row[other]).join();
    return [{ value, name, apart, of, scale: scaleOf(name) ?? scaleOf(of) }];
  }));
  const oneScale = new Set(estimates.flatMap(({ scale }) => scale ?? [])).size < 2, found = {};
  for (const { value, name, apart, of, scale } of estimates) {
    const axis = found[`${apart} ${oneScale || scale}`] ??= { values: [], columns: new Set(), rows: new Set() };
    axis.values.push(value);
    axis.columns.add(name);
    axis.rows.add(of);
  }
  return Object.values(found).filter((axis) => {
    const { values } = axis, known = values.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]);
    const [from, to] = axis.ends = [Math.min(...known), Math.max(...known)];
    // The only bar of an axis is always full; it can only show where zero is.
    return values.some(({ low, high }) => low !== null || high !== null) && (values.length > 1 ? from < to : from < 0 && to > 0);
  });
}
function saidOf(axes) {  // from where to where the lines below the values run
  const sorted = [...axes].sort((one, other) => one.columns.size - other.columns.size), columns = sorted.flatMap((axis) => [...axis.columns]);
  const byRow = new Set(columns).size < columns.length;
  const where = (axis, place) => (byRow ? `${[...axis.columns].join(", ")} of ${[...axis.rows].join(", ")}`
    : axis.columns.size === 1 || place < sorted.length - 1 ? [...axis.columns].join(", ") : place ? "the other columns" : "all columns");
  const runs = sorted.map((axis, place) => `from ${fixed(axis.ends[0])} to ${fixed(axis.ends[1])} in ${where(axis, place)}`);
  const without = axes.flatMap(({ values }) => values.filter(({ low, high }) => low === null && high === null));
  const reasons = [...new Set(without.flatMap(({ why }) => why ?? []))].join("; or because ");
  const hollow = without.length ? ` A hollow point has no interval${reasons && `, because ${reasons}`}.` : "";
  return `The line below a value runs ${runs.join("; ")}.${hollow}`;
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
  const axes = axesOf(columns, rows);
  const body = rows.map((row) => {
    const cells = row.map((value, column) => cell(value, columns[column].kind, axes.find(({ values }) => values.includes(value))));
    const index = isOfSystems ? head.series.indexOf(row[0]) : -1;
    if (index >= 0) cells[0].prepend(dot(index));
    const listed = columns[0].name === "row" ? rowOf(row[0], row[1]) : -1;
    const read = (event) => { event.preventDefault(); show([listed]); };
    if (listed >= 0) cells[0].replaceChildren(make("a", { href: "#judgements", onclick: read }, row[0]));
    return make("tr", {}, ...cells);
  });
  table.append(make("tbody", {}, ...body));
  return axes.length ? make("p", { class: "axes" }, saidOf(axes)) : null;
}
function showTables(section, { leads, tables, notes }) {
  $(section).hidden = false;
  const body = $(section + "-body");
  for (const lead of tables.length ? [] : $(section).querySelectorAll(":scope > .lead")) lead.remove();
  if (leads.length) $("h-" + section).after(make("p", { class: "verdict" }, leads[0]));
  for (const lead of leads.slice(1)) body.append(make("p", { class: "lead" }, lead));
  for (const one of tables) {
    const table = make("table");
    const said = fillTable(table, one.folded ? { ...one, caption: null } : one);
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": one.caption }, table);
    const parts = [scroll, ...(said ? [said] : []), ...one.notes.map((note) => make("p", { class: "lead" }, note))];
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
function showKey() {  // the colour of each value, once for all aspects with the same values
  const alike = new Map();
  aspects.forEach(({ kind, values }, aspect) => {
    const own = `${kind} ${values.join()}`;
    alike.set(own, [...(alike.get(own) ?? []), aspect]);
  });
  for (const own of alike.values()) {
    const { kind, values } = aspects[own[0]], step = kind === "scale" ? Math.ceil(values.length / MOST_OFFERED) : 1;
    const scores = [...values.keys()].filter((score) => score % step === 0 || score === values.length - 1);
    const names = alike.size > 1 ? make("span", {}, own.map((aspect) => aspects[aspect].name).join(", ")) : null;
    $("profile-key").append(make("p", { class: "key" }, names, ...scores.map((score) => chip(own[0], score))));
  }
}
if (!compared) {  // of pairs, the table of the systems has their win rates
  $("profile").hidden = false;
  showKey();
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

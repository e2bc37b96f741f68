// The list of judgements, the chosen one beside it, and the keys.

const CROWDED = 20;           // bars that stand without a space between them above this number

// ---- the list -------------------------------------------------------------------------------------------

function paintList() {
  const list = $("list"), first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
  const last = Math.min(state.rows.length, first + Math.ceil(list.clientHeight / ROW) + 9);
  const lines = [];
  for (let place = first; place < last; place++) lines.push(line(place));
  $("spacer").replaceChildren(...lines);
  const active = $("line-" + state.at);
  if (active) list.setAttribute("aria-activedescendant", active.id);
  else list.removeAttribute("aria-activedescendant");
}
function line(place) {
  const row = state.rows[place];
  const marks = make("span", { class: "marks" });
  if (flags[row] & FAILED) marks.append(make("b", {}, "failed"));
  else {
    aspects.forEach(({ name, values }, aspect) => {
      const score = ofAspect(scores, aspect, row);
      marks.append(chip(aspect, score, `${name}: ${values[score]}`));
    });
    if (ordered.length) marks.append(make("span", { class: "mean" }, overallText(overall[row])));
  }
  const node = make("div", {
    role: "option", id: "line-" + place, class: "line", "aria-selected": String(place === state.at),
    "aria-setsize": state.rows.length, "aria-posinset": place + 1, onclick: () => choose(place, "open"),
  },
  make("span", { class: "instruction" }, head.snippets[group[row]] || "(empty)"),
  make("span", { class: "who" }, dot(series[row]), head.series[series[row]].label,
    make("span", { class: "muted" }, " · " + head.ids[row]), state.chosen.has(row) ? " ✓" : null),
  marks);
  node.style.top = place * ROW + "px";
  return node;
}
let painting = 0;
$("list").addEventListener("scroll", () => {
  cancelAnimationFrame(painting);
  painting = requestAnimationFrame(paintList);
});
function choose(place, open) {
  state.at = place;
  const list = $("list"), top = place * ROW;
  if (place >= 0) {
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  }
  paintList();
  paintDetail();
  if (open) $("reader").classList.add("open");
}
const step = (by) => state.rows.length && choose(Math.max(0, Math.min(state.rows.length - 1, state.at + by)));

// ---- a judgement ----------------------------------------------------------------------------------------

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
function scoreTable(each, limit) {
  const means = aspects.map((_, aspect) => ofAspect(expected, aspect, each.row));
  const [first] = aspects;
  // The expected score of a boolean is among its probabilities.
  const withMeans = aspects.some(({ kind }, aspect) => kind !== "boolean" && !Number.isNaN(means[aspect]));
  const same = aspects.every(({ kind, values }) => kind === "scale" && values.join() === first.values.join());
  const headings = make("tr", {}, make("th", { scope: "col", class: "word" }, "aspect"),
    make("th", { scope: "col", class: "word" }, "score"), withMeans ? make("th", { scope: "col" }, "expected") : null,
    each.probabilities ? make("th", { scope: "col", class: "word" },
      same ? `probability of ${first.values[0]} to ${first.values.at(-1)}` : "probabilities") : null);
  const body = make("tbody");
  aspects.forEach((aspect, place) => {
    const score = ofAspect(scores, place, each.row), weights = each.probabilities?.[aspect.name];
    const own = each.rationales?.[aspect.name];
    body.append(make("tr", { class: own ? "reasoned" : "" }, make("th", { scope: "row" }, ...breakable(aspect.name)),
      make("td", { class: "word" }, chip(place, score)),
      withMeans ? make("td", {}, meanOf(place, means[place])) : null,
      each.probabilities ? make("td", { class: "word" }, weights ? probabilities(aspect, score, weights) : "–") : null));
    if (own) body.append(make("tr", {}, make("td", { class: "word", colspan: headings.children.length }, prose(own, limit))));
  });
  return make("table", { class: "scores" }, make("thead", {}, headings), body);
}
function card(each, limit) {
  const title = make("h4", {}, dot(series[each.row]), head.series[series[each.row]].label);
  const failed = flags[each.row] & FAILED;
  const parts = [title];
  if (failed) parts.push(make("p", { class: "notice" }, "Failed: " + each.error));
  else {
    parts.push(scoreTable(each, limit));
    if (each.rationale) parts.push(make("h5", {}, "Rationale"), prose(each.rationale, limit));
    if (flags[each.row] & RATIONALE_CUT) {
      parts.push(make("p", { class: "muted" }, `${each.rationales ? "A" : "The"} rationale was cut at its limit.`));
    }
    if (each.thoughts) parts.push(make("h5", {}, "Thoughts"), prose(each.thoughts, limit));
  }
  parts.push(make("h5", {}, "Candidate"), prose(each.candidate, limit));
  if (each.cut) parts.push(make("p", { class: "muted" }, `The judge did not see its last ${count(each.cut)} characters.`));
  const columns = Object.entries(each.columns ?? {}).filter(([, value]) => value !== null && JSON.stringify(value) !== "{}");
  if (columns.length) {
    const listed = columns.map(([name, value]) => make("div", {}, make("dt", {}, name),
      make("dd", {}, (typeof value === "string" ? value : JSON.stringify(value)).slice(0, LONG))));
    parts.push(make("details", {}, make("summary", {}, "Columns"), make("dl", {}, ...listed)));
  }
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
const others = (row) => together(row).filter((other) => other !== row);
async function paintDetail() {
  const shown = ++state.shown, row = state.rows[state.at], detail = $("detail");
  if (row === undefined) return detail.replaceChildren();
  const rest = others(row), beside = rest.find((other) => series[other] === state.beside);
  const each = await Promise.all([row, beside].filter((one) => one !== undefined).map(judgement));
  if (shown !== state.shown) return undefined;
  const choice = make("select", { id: "beside", onchange: (event) => {
    state.beside = event.target.value === "" ? -1 : series[+event.target.value];
    paintDetail().then(() => $("beside").focus());
  } }, option("", "nothing"), ...rest.map((other) => option(other, head.series[series[other]].label)));
  choice.value = beside ?? "";
  const print = make("button", { type: "button", id: "print", "aria-pressed": String(state.chosen.has(row)),
    onclick: chooseForPrint }, "Choose for print");
  detail.replaceChildren(
    make("div", { class: "detail-tools" },
      make("button", { type: "button", class: "back", onclick: back }, "Back"),
      make("span", { class: "muted" }, `${count(state.at + 1)} of ${count(state.rows.length)}`),
      make("button", { type: "button", "aria-label": "Previous", onclick: () => step(-1) }, "↑"),
      make("button", { type: "button", "aria-label": "Next", onclick: () => step(1) }, "↓"),
      make("label", {}, "Beside it ", choice), print),
    ...body(each, LONG));
  detail.scrollTop = 0;
  return undefined;
}
function nextBeside() {
  const row = state.rows[state.at];
  if (row === undefined) return;
  const rest = others(row), at = rest.findIndex((other) => series[other] === state.beside);
  state.beside = at + 1 < rest.length ? series[rest[at + 1]] : -1;
  paintDetail();
}
async function chooseForPrint() {
  const row = state.rows[state.at];
  if (row === undefined) return;
  if (state.chosen.has(row)) {
    state.chosen.get(row).remove();
    state.chosen.delete(row);
  } else {
    const page = make("article", { class: "printed" });
    state.chosen.set(row, page);
    $("chosen").append(page);
    page.append(...body([await judgement(row)], LONG_IN_PRINT));
  }
  $("print")?.setAttribute("aria-pressed", String(state.chosen.has(row)));
  paintList();
}
function back() {
  $("reader").classList.remove("open");
  $("list").focus({ preventScroll: true });
}

// ---- keys and tools -------------------------------------------------------------------------------------

function clearTools() {
  $("tools").reset();
  $("direction").setAttribute("aria-pressed", "false");
  $("direction").textContent = "Ascending";
  offerScores();
}
function direct(descending) {
  $("direction").setAttribute("aria-pressed", String(descending));
  $("direction").textContent = descending ? "Descending" : "Ascending";
}
let typing = 0;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(refresh, 150);
});
$("tools").addEventListener("change", ({ target }) => {
  if (target.id === "by-aspect") offerScores();
  if (target.id === "by-order") direct(ORDERS[target.selectedIndex][2]);
  if (target.id !== "search") refresh();
});
$("tools").addEventListener("submit", (event) => event.preventDefault());
$("direction").addEventListener("click", ({ target }) => {
  direct(target.getAttribute("aria-pressed") !== "true");
  refresh();
});
$("reset").addEventListener("click", () => { clearTools(); refresh(); });
$("keys-button").addEventListener("click", () => $("keys").showModal());

const anywhere = {
  "/": () => { $("search").focus(); $("search").select(); },
  f: () => $("by-series").focus(),
  j: () => step(1),
  k: () => step(-1),
  b: nextBeside,
  p: chooseForPrint,
  "?": () => $("keys").showModal(),
  Escape: back,
};
const inList = {
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  Home: () => step(-Infinity),
  End: () => step(Infinity),
  PageDown: () => step(Math.floor($("list").clientHeight / ROW)),
  PageUp: () => step(-Math.floor($("list").clientHeight / ROW)),
  Enter: () => { $("reader").classList.add("open"); $("detail").focus(); },
};
const inSearch = {
  Enter: () => { clearTimeout(typing); refresh(); $("list").focus(); },
  ArrowDown: () => $("list").focus(),
  Escape: () => { if ($("search").value) { $("search").value = ""; refresh(); } else $("list").focus(); },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  const where = event.target === $("search") ? inSearch
    : event.target.matches?.("input, select, textarea") ? { Escape: () => $("list").focus() }
      : event.target === $("list") ? { ...anywhere, ...inList } : anywhere;
  const act = where[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
let resizing = 0;
window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => { paintList(); drawAll(); }, 200);
});

await refresh();
document.documentElement.dataset.ready = "yes";
await drawAll();

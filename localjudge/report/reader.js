// The list of judgements or pairs, the chosen one beside it, and the keys.

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
  marks.append(...(flags[row] & FAILED ? [make("b", {}, "failed")] : marksOf(row)));
  const node = make("div", {
    role: "option", id: "line-" + place, class: "line", "aria-selected": String(place === state.at),
    "aria-setsize": state.rows.length, "aria-posinset": place + 1, onclick: () => choose(place, "open"),
  },
  make("span", { class: "instruction" }, head.snippets[group[row]] || "(empty)"),
  make("span", { class: "who" }, ...who(row),
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

// ---- the chosen one ----------------------------------------------------------------------------------------

async function paintDetail() {
  const shown = ++state.shown, row = state.rows[state.at], detail = $("detail");
  if (row === undefined) return detail.replaceChildren();
  const each = await Promise.all([row, ...beside(row)].map(rowTexts));
  if (shown !== state.shown) return undefined;
  const print = make("button", { type: "button", id: "print", "aria-pressed": String(state.chosen.has(row)),
    onclick: chooseForPrint }, "Choose for print");
  detail.replaceChildren(
    make("div", { class: "detail-tools" },
      make("button", { type: "button", class: "back", onclick: back }, "Back"),
      make("span", { class: "muted" }, `${count(state.at + 1)} of ${count(state.rows.length)}`),
      make("button", { type: "button", "aria-label": "Previous", onclick: () => step(-1) }, "↑"),
      make("button", { type: "button", "aria-label": "Next", onclick: () => step(1) }, "↓"),
      ...toolsOf(row), print),
    ...body(each, LONG));
  detail.scrollTop = 0;
  return undefined;
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
    page.append(...body([await rowTexts(row)], LONG_IN_PRINT));
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
  resizing = setTimeout(paintList, 200);
});

await refresh();
document.documentElement.dataset.ready = "yes";

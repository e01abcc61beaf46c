"use strict";
// The switches of the page. What a reader has chosen is kept in the session, so that a reload changes nothing.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const config = JSON.parse($("#config").textContent);
const KEY = `ata-gym ${location.pathname}`;
const state = { theme: null, off: [], switches: {}, choices: {}, sort: {}, open: [], ...saved() };

function saved() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) || {};
  } catch {
    return {};
  }
}
function save() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(state));
  } catch {
    // Where the session cannot be kept, a reload starts anew.
  }
}

// Light and dark.
const prefers = matchMedia("(prefers-color-scheme: dark)");
let printing = false;
const isDark = () => !printing && (state.theme ? state.theme === "dark" : prefers.matches);
function applyTheme() {
  if (state.theme && !printing) document.documentElement.dataset.theme = state.theme;
  else if (printing) document.documentElement.dataset.theme = "light";
  else delete document.documentElement.dataset.theme;
  $("#theme").textContent = isDark() ? "light" : "dark";
}

// Policies: their colours wherever their names stand, and who is shown.
const byName = new Map(config.looks.map((look, place) => [look.name, place]));
function paint() {
  for (const button of $$(".look")) {
    const look = config.looks[button.dataset.look];
    button.style.setProperty("--light", look.light);
    button.style.setProperty("--dark", look.dark);
  }
  for (const element of $$("[data-name]")) {
    const look = config.looks[byName.get(element.dataset.name)], dot = $(".dot", element);
    if (!look || !dot) continue;
    dot.style.setProperty("--light", look.light);
    dot.style.setProperty("--dark", look.dark);
  }
}
function applyPolicies() {
  for (const button of $$(".look")) {
    button.setAttribute("aria-pressed", String(!state.off.includes(config.looks[button.dataset.look].name)));
  }
  for (const row of $$("tbody tr")) row.classList.toggle("off", state.off.includes($("th", row).dataset.name));
  $("#everyone").hidden = state.off.length === 0;
}
const looks = (dark = isDark()) =>
  config.looks.map((look) => ({ ...look, colour: dark ? look.dark : look.light, off: state.off.includes(look.name) }));

// Charts are drawn when they come into view, and again when something that they show has changed.
const stale = new Set(Object.keys(config.charts)), near = new Set(), known = {};
function data(id, place) {
  return (known[`${id}-${place}`] ??= JSON.parse($(`#data-${CSS.escape(id)}-${place}`).textContent));
}
// The view that agrees with most of what was chosen, what is listed first counting most.
function viewOf(views) {
  let left = views.map((_, place) => place);
  for (const name of new Set(views.flatMap(Object.keys))) {
    const agree = left.filter((place) => [undefined, state.choices[name]].includes(views[place][name]));
    if (agree.length) left = agree;
  }
  return left[0] || 0;
}
function draw(id) {
  const chart = config.charts[id], section = $(`[data-chart="${CSS.escape(id)}"]`), plot = $(".plot", section);
  stale.delete(id);
  const place = viewOf(chart.views), spec = { ...chart, ...switchesOf(id) };
  for (const select of $$("select", section)) select.value = chart.views[place][select.dataset.choose] ?? select.value;
  for (const button of $$(".switch", section)) button.setAttribute("aria-pressed", String(Boolean(spec[button.dataset.switch])));
  const theme = colours(isDark());
  const { traces, layout, height } = drawings[chart.kind](spec, data(id, place), looks(), theme, plot.clientWidth, plot.clientHeight);
  if (height) plot.style.height = `${height}px`;
  Plotly.react(plot, traces, { ...layout, autosize: true }, { responsive: true, displaylogo: false, displayModeBar: false, staticPlot: printing });
}
// A picture as it is shown, but on light paper, and with the names of its lines.
async function asSvg(id) {
  const chart = config.charts[id], plot = $(`[data-chart="${CSS.escape(id)}"] .plot`), height = plot.clientHeight;
  const shown = data(id, viewOf(chart.views)), spec = { ...chart, ...switchesOf(id) }, named = chart.kind === "curves";
  const { traces, layout } = drawings[chart.kind](spec, shown, looks(false), colours(false), plot.clientWidth, height);
  const form = { format: "svg", width: plot.clientWidth + (named ? 200 : 0), height };
  return Plotly.toImage({ data: traces, layout: { ...layout, showlegend: named, paper_bgcolor: "#ffffff" } }, form);
}
// A table with its numbers as they are, and not as they are rounded for the eye.
function asCsv(view) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const text = (cell) => cell.dataset.value ?? cell.textContent.replace(/\(1e\d+\)/, "").replace(/\s+/g, " ").trim();
  const lines = [...$("table", view).rows].map((row) => [...row.cells].map((cell) => quoted(text(cell))).join(","));
  return `data:text/csv;charset=utf-8,${encodeURIComponent(lines.join("\n") + "\n")}`;
}
function download(address, name) {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}
const switchesOf = (id) => {
  const { perRound, logX, logY } = config.charts[id];
  return { perRound, logX, logY, ...state.switches[id] };
};
function redraw(ids = Object.keys(config.charts)) {
  for (const id of ids) stale.add(id);
  for (const id of near) if (stale.has(id)) draw(id);
  save();
}
const watcher = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const id = target.dataset.chart;
      if (isIntersecting) near.add(id);
      else near.delete(id);
      if (isIntersecting && stale.has(id)) draw(id);
    }
  },
  { rootMargin: "150px" },
);

// Tables: the one chosen, and its order.
function applyTables() {
  for (const section of $$(".tables")) {
    const views = $$(".scroll", section), choices = views.map((view) => JSON.parse(view.dataset.view));
    const place = viewOf(choices);
    views.forEach((view, k) => (view.hidden = k !== place));
    for (const select of $$("select", section)) select.value = choices[place][select.dataset.choose];
    const [column, direction] = state.sort[section.id] || [];
    if (column !== undefined) sort(views[place], column, direction);
  }
}
function sort(view, column, direction) {
  const heads = $$("thead th", view), body = $("tbody", view), numeric = heads[column]?.classList.contains("number");
  if (!heads[column]) return;
  const value = (row) => {
    const cell = row.children[column];
    return numeric ? parseFloat(cell.dataset.value ?? "NaN") : cell.textContent.trim();
  };
  const sign = direction === "ascending" ? 1 : -1;
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (!numeric) return sign * x.localeCompare(y);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return sign * (x - y);
  });
  body.append(...rows);
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[column].setAttribute("aria-sort", direction);
}

// What readers do.
document.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (!button) return;
  if (button.id === "theme") {
    state.theme = isDark() ? "light" : "dark";
    applyTheme();
    redraw();
  } else if (button.id === "everyone") {
    state.off = [];
    applyPolicies();
    redraw();
  } else if (button.matches(".look")) {
    const { name } = config.looks[button.dataset.look];
    state.off = state.off.includes(name) ? state.off.filter((other) => other !== name) : [...state.off, name];
    applyPolicies();
    redraw();
  } else if (button.matches(".switch")) {
    const id = button.closest("[data-chart]").dataset.chart, name = button.dataset.switch;
    state.switches[id] = { ...state.switches[id], [name]: !switchesOf(id)[name] };
    redraw([id]);
  } else if (button.matches(".svg")) {
    const { chart } = button.closest("[data-chart]").dataset;
    asSvg(chart).then((address) => download(address, `${chart}.svg`));
  } else if (button.matches(".csv")) {
    const section = button.closest("section");
    download(asCsv($(".scroll:not([hidden])", section)), `${section.id}.csv`);
  } else if (button.matches("thead button")) {
    const head = button.closest("th"), view = button.closest(".scroll"), column = [...head.parentNode.children].indexOf(head);
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    state.sort[button.closest("section").id] = [column, direction];
    sort(view, column, direction);
    save();
  } else if (button.matches(".copy")) {
    copy($("code", button.parentNode)).then(() => {
      button.textContent = $("#said").textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
  } else if (button.id === "unfold") {
    const fold = $$(".card").every((card) => card.open);
    for (const card of $$(".card")) card.open = !fold;
  }
});
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
  } catch {
    getSelection().selectAllChildren(element);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
}
document.addEventListener("change", ({ target }) => {
  if (!target.dataset.choose) return;
  state.choices[target.dataset.choose] = target.value;
  applyTables();
  redraw();
});
document.addEventListener(
  "toggle",
  () => {
    if (printing) return;
    state.open = $$(".card[open]").map((card) => card.id);
    const all = $$(".card").every((card) => card.open);
    if ($("#unfold")) {
      $("#unfold").textContent = all ? "fold all" : "unfold all";
      $("#unfold").setAttribute("aria-expanded", String(all));
    }
    save();
  },
  true,
);
prefers.addEventListener("change", () => {
  applyTheme();
  redraw();
});
addEventListener("pagehide", save);

// On paper: light, all charts drawn and as wide as the paper, all cards open.
addEventListener("beforeprint", () => {
  printing = true;
  applyTheme();
  for (const card of $$(".card")) card.open = true;
  // On narrow paper the style has lower plots, and a picture that is higher would cover what follows.
  for (const plot of $$(".plot")) Object.assign(plot.style, { width: "690px", height: `${plot.clientHeight}px` });
  if (window.Plotly) for (const id of Object.keys(config.charts)) draw(id);
});
addEventListener("afterprint", () => {
  printing = false;
  applyTheme();
  for (const card of $$(".card")) card.open = state.open.includes(card.id);
  for (const plot of $$(".plot")) Object.assign(plot.style, { width: "", height: "" });
  redraw();
});

// The script of plotly is compressed, as zlib does it; pictures are drawn when it is there.
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const script = document.createElement("script");
  script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  document.head.append(script);
}

// What a word means is said where it is read, too.
function explain() {
  const meanings = $$("#terms dt").map((term) => [term.textContent, term.nextElementSibling.textContent]);
  for (const head of $$("thead button")) {
    const words = head.textContent.replace(/\s+/g, " ");
    const found = meanings.filter(([term]) => words.includes(term)).map(([term, said]) => `${term}: ${said}`);
    if (found.length) head.title = found.join("\n");
  }
}

paint();
explain();
applyTheme();
applyPolicies();
applyTables();
for (const id of state.open) if (document.getElementById(id)) document.getElementById(id).open = true;
unpack($("#plotly").textContent).then(() => {
  for (const section of $$("[data-chart]")) watcher.observe(section);
});

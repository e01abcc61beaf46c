"use strict";
// Traces and layouts of the pictures. Texts of users pass through label(): plotly reads tags and %{...} in texts.

const label = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%/g, "&#37;");
const short = (number) => (number === null || number === undefined ? "-" : Number(number.toPrecision(4)).toLocaleString("en"));
const SYMBOLS = { oracle: "diamond", baseline: "square", method: "triangle-up" };

function colours(dark) {
  const probe = document.createElement("span");
  document.body.append(probe);
  const read = (name) => ((probe.style.color = `var(${name})`), getComputedStyle(probe).color);
  const found = { ink: read("--ink"), quiet: read("--quiet"), line: read("--line"), paper: read("--paper"), dark };
  probe.remove();
  return found;
}

// A long title in two lines, since plots are low on narrow screens and on paper.
const titled = (title) => label(title.length > 36 ? title.replace(", ", ",\n") : title).replace("\n", "<br>");

function axis(title, log, theme, values = []) {
  return {
    title: { text: titled(title), font: { size: 12, color: theme.quiet }, standoff: 8 }, type: log ? "log" : "linear", automargin: true,
    gridcolor: theme.line, linecolor: theme.line, zeroline: false, tickfont: { size: 11, color: theme.quiet },
    exponentformat: "SI", minexponent: 4, nticks: 7, ...(log ? ticks(values) : {}),
  };
}

// Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, or at these alone where there are many.
function ticks(values) {
  const low = Math.min(...values), high = Math.max(...values);
  if (!(low > 0) || high < 3 * low) return {};
  const parts = high < 300 * low ? [1, 2, 5] : [1], at = [];
  for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.log10(high) + 1; power++) at.push(...parts.map((part) => part * 10 ** power));
  return { tickvals: at, ticktext: at.map(si) };
}
function si(number) {
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (number >= unit) return `${Number((number / (name === "k" ? 1e3 : unit)).toPrecision(3))}${name}`;
  }
  return String(Number(number.toPrecision(3)));
}

function frame(theme, x, y, more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest", dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", color: theme.ink, size: 12 },
    margin: { l: 48, r: 12, t: 8, b: 40 }, xaxis: x, yaxis: y,
    hoverlabel: { bgcolor: theme.paper, bordercolor: theme.line, font: { color: theme.ink, size: 12 }, align: "left" }, ...more,
  };
}

// The thin line of a bound, its name in a corner that the curves leave free, and an axis that ends not far above the curves.
function boundOf(spec, data, looks, theme, lines) {
  const { name, y, below } = data.bound, missed = below.filter((place) => !looks[place].off).map((place) => looks[place].name);
  const shown = data.x.map((_, k) => k).filter((k) => !(spec.logY && y[k] <= 0)), scale = (k) => (spec.perRound ? 1 / data.x[k] : 1);
  const heights = shown.map((k) => y[k] * scale(k)), curves = lines.flatMap((line) => line.y), high = Math.max(...curves), low = Math.min(0, ...curves);
  const words = [name, ...(missed.length ? ["not reached by", ...missed.map((one, k) => one + (k < missed.length - 1 ? "," : ""))] : [])];
  const rows = words.reduce((made, word, k) => (k > 1 && `${made.at(-1)} ${word}`.length < 34 ? [...made.slice(0, -1), `${made.at(-1)} ${word}`] : [...made, word]), []);
  const right = spec.perRound;
  return {
    traces: [{
      x: shown.map((k) => data.x[k]), y: heights, mode: "lines", name: label(name), line: { color: theme.quiet, width: 1, dash: "5px,3px" },
      hovertemplate: shown.map((k, j) => `<b>${label(name)}</b><br>${label(spec.x)} ${short(data.x[k])}<br>${short(heights[j])}<extra></extra>`),
    }],
    annotations: [{
      xref: "paper", yref: "paper", x: right ? 1 : 0.01, y: 1, xanchor: right ? "right" : "left", yanchor: "top", align: right ? "right" : "left", showarrow: false,
      text: `╌╌ ${rows.map(label).join("<br>")}`, font: { size: 11, color: theme.quiet }, bgcolor: theme.paper,
    }],
    range: !spec.logY && high > 0 && Math.max(...heights) > 1.5 * high ? [low, 1.5 * high] : null,
  };
}

// A translucent form of "#rrggbb".
const faint = (colour, alpha) => `rgba(${[1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16)).join(",")},${alpha})`;

const drawings = {
  curves(spec, data, looks, theme) {
    const bands = [], lines = [];
    for (const one of data.series) {
      const who = looks[one.p], all = one.x || data.x;
      if (who.off) continue;
      const shown = all.map((_, k) => k).filter((k) => one.mean[k] !== null && !(spec.logX && all[k] <= 0) && !(spec.logY && one.mean[k] <= 0));
      const x = shown.map((k) => all[k]), scale = (k) => (spec.perRound ? 1 / all[k] : 1);
      const y = shown.map((k) => one.mean[k] * scale(k));
      if (one.half) {
        const high = shown.map((k, j) => y[j] + one.half[k] * scale(k));
        const low = shown.map((k, j) => (spec.logY ? Math.max(y[j] - one.half[k] * scale(k), y[j] / 20) : y[j] - one.half[k] * scale(k)));
        bands.push({
          x: x.concat([...x].reverse()), y: high.concat(low.reverse()), mode: "lines", line: { width: 0 }, fill: "toself",
          fillcolor: faint(who.colour, theme.dark ? 0.24 : 0.17), hoverinfo: "skip", showlegend: false,
        });
      }
      if (one.halfX) {
        const right = shown.map((k, j) => x[j] + one.halfX[k]);
        const left = shown.map((k, j) => (spec.logX ? Math.max(x[j] - one.halfX[k], x[j] / 20) : x[j] - one.halfX[k]));
        bands.push({
          x: right.concat(left.reverse()), y: y.concat([...y].reverse()), mode: "lines", line: { width: 0 }, fill: "toself",
          fillcolor: faint(who.colour, theme.dark ? 0.24 : 0.17), hoverinfo: "skip", showlegend: false,
        });
      }
      lines.push({
        x, y, mode: "lines", name: label(who.name), line: { color: who.colour, width: 2, dash: who.dash },
        hovertemplate: shown.map((k, j) => `<b>${label(who.name)}</b><br>${label(spec.x)} ${short(all[k])}<br>${short(y[j])}` +
          (one.half && one.half[k] ? ` ± ${short(one.half[k] * scale(k))}` : "") + "<extra></extra>"),
      });
    }
    const title = spec.perRound ? `${spec.y}, mean per round` : spec.y;
    const x = axis(spec.x, spec.logX, theme, lines.flatMap((line) => line.x)), y = axis(title, spec.logY, theme, lines.flatMap((line) => line.y));
    const bound = data.bound ? boundOf(spec, data, looks, theme, lines) : { traces: [], annotations: [] };
    if (bound.range) y.range = bound.range;
    return { traces: [...bands, ...bound.traces, ...lines], layout: frame(theme, x, y, { annotations: bound.annotations }) };
  },

  front(spec, data, looks, theme, width, height) {
    const points = data.points.filter((point) => !looks[point.p].off);
    const best = points.filter((a) => !points.some((b) => b !== a && b.x[0] <= a.x[0] && b.y[0] <= a.y[0] && (b.x[0] < a.x[0] || b.y[0] < a.y[0])));
    best.sort((a, b) => a.x[0] - b.x[0]);
    const line = {
      x: best.map((point) => point.x[0]), y: best.map((point) => point.y[0]), mode: "lines", hoverinfo: "skip",
      line: { color: theme.quiet, width: 1.5, dash: "2px,3px" },
    };
    const bars = (of) => ({
      type: "data", symmetric: false, array: [of[2] === null ? 0 : of[2] - of[0]], arrayminus: [of[1] === null ? 0 : of[0] - of[1]], thickness: 1.2, width: 0,
    });
    const traces = points.map((point) => {
      const who = looks[point.p];
      return {
        x: [point.x[0]], y: [point.y[0]], mode: "markers", error_x: { ...bars(point.x), color: who.colour }, error_y: { ...bars(point.y), color: who.colour },
        marker: { size: 11, color: who.colour, symbol: SYMBOLS[who.kind] || "circle", line: { color: theme.paper, width: 1.2 } },
        hovertemplate: `<b>${label(who.name)}</b> ${label(who.kind)}<br>${label(spec.x)} ${short(point.x[0])}<br>${label(spec.y)} ${short(point.y[0])}<extra></extra>`,
      };
    });
    const x = axis(spec.x, spec.logX, theme, points.map((point) => point.x[0])), y = axis(spec.y, spec.logY, theme, points.map((point) => point.y[0]));
    const to = (log) => (value) => (log ? Math.log10(value) : value);
    const ends = (axis, log) => points.flatMap((point) => point[axis]).filter((value) => value !== null && !(log && value <= 0)).map(to(log));
    x.range = padded(ends("x", spec.logX));
    y.range = padded(ends("y", spec.logY));
    const named = points.map((point) => ({ name: looks[point.p].name, x: to(spec.logX)(point.x[0]), y: to(spec.logY)(point.y[0]) }));
    const annotations = place(named, x.range, y.range, width - 75, height - 60, theme);
    return { traces: [line, ...traces], layout: frame(theme, x, y, { annotations }) };
  },

  heat(spec, data, looks, theme) {
    const { rounds, sizes, top } = data, bytes = Uint8Array.from(atob(data.cells), (c) => c.charCodeAt(0));
    const cells = new Uint16Array(bytes.buffer), share = (k, g) => (cells[k * sizes.length + g] / 65535) * top;
    const between = spec.logX ? (a, b) => Math.sqrt(a * b) : (a, b) => (a + b) / 2;
    const edges = rounds.slice(1).map((round, k) => between(round, rounds[k]));
    const x = [rounds[0] * (spec.logX ? 0.8 : 1), ...edges, rounds[rounds.length - 1]];
    const y = sizes.reduce((sums, size) => [...sums, sums[sums.length - 1] + size], [0]);
    const custom = sizes.map((_, g) => rounds.map((_, k) => share(k, g)));
    const z = custom.map((row) => row.map(Math.sqrt)), most = spec.top || top;
    const scale = theme.dark
      ? [[0, theme.paper], [0.12, "#2a1a4e"], [0.4, "#8c2981"], [0.7, "#f1605d"], [1, "#fcfdbf"]]
      : [[0, theme.paper], [0.12, "#fde4b8"], [0.4, "#f8765c"], [0.7, "#9a2d80"], [1, "#1d1147"]];
    const ticks = [0, 0.04, 0.25, 0.5, 1].map((part) => part * most);
    const workers = sizes.map((size, g) => (size === 1 ? `worker ${y[g] + 1}` : `workers ${y[g] + 1} to ${y[g + 1]}`));
    const trace = {
      type: "heatmap", x, y, z, zmin: 0, zmax: Math.sqrt(most), colorscale: scale, customdata: custom,
      text: workers.map((name) => rounds.map((round) => `${name} of ${y[y.length - 1]}, by mean task time<br>${label(spec.x)} ${round.toLocaleString("en")}`)),
      hovertemplate: "%{text}<br>share of B: %{customdata:.2%}<extra></extra>",
      colorbar: {
        title: { text: "share of B<br>of a worker", font: { size: 11, color: theme.quiet } }, thickness: 10, outlinewidth: 0, tickvals: ticks.map(Math.sqrt),
        ticktext: ticks.map((part) => `${Number((100 * part).toPrecision(2))} %`), tickfont: { size: 11, color: theme.quiet },
      },
    };
    const vertical = { ...axis(spec.y, false, theme), showgrid: false };
    return { traces: [trace], layout: frame(theme, { ...axis(spec.x, spec.logX, theme, rounds), showgrid: false }, vertical) };
  },

  // Ratios on a scale of powers of 2 whose middle is 1; the first worker stands at the top.
  times(spec, data, looks, theme, width) {
    const { workers, first, last, cells } = data, most = Math.log2(spec.top), x = first.map((_, k) => k), y = workers.map((_, k) => k);
    const scale = theme.dark
      ? [[0, "#6fb1ff"], [0.25, "#2f5f9e"], [0.5, theme.paper], [0.75, "#a8452f"], [1, "#ff9068"]]
      : [[0, "#1f4e96"], [0.25, "#7fb0dd"], [0.5, theme.paper], [0.75, "#ef9a7a"], [1, "#a5211f"]];
    const count = Math.min(x.length, Math.max(2, Math.floor(width / 110)));
    const shown = Array.from({ length: count }, (_, k) => Math.round((k * (x.length - 1)) / Math.max(count - 1, 1)));
    const steps = x.map((k) => (first[k] === last[k] ? `${spec.x} ${label(first[k])}` : `${spec.x}s ${label(first[k])} to ${label(last[k])}`));
    const trace = {
      type: "heatmap", x, y, z: cells.map((row) => row.map((ratio) => Math.log2(Math.max(ratio, 1e-3)))), zmin: -most, zmax: most, colorscale: scale,
      customdata: cells, text: workers.map((name) => steps.map((step) => `<b>${label(name)}</b><br>${step}`)),
      hovertemplate: "%{text}<br>%{customdata:.3~g} of the median<extra></extra>",
      colorbar: {
        title: { text: "of the<br>median", font: { size: 11, color: theme.quiet } }, thickness: 10, outlinewidth: 0, tickvals: spec.ticks.map(Math.log2),
        ticktext: spec.ticks.map(String), tickfont: { size: 11, color: theme.quiet },
      },
    };
    const horizontal = { ...axis(spec.x, false, theme), showgrid: false, tickvals: shown, ticktext: shown.map((k) => label(first[k])) };
    const names = { tickvals: y, ticktext: workers.map(label), autorange: "reversed", tickfont: { size: 12, color: theme.ink } };
    return { traces: [trace], layout: frame(theme, horizontal, { ...axis("", false, theme), showgrid: false, ...names }), height: 110 + 24 * workers.length };
  },

  spread(spec, data, looks, theme) {
    const series = data.series.filter((one) => !looks[one.p].off).reverse();
    const traces = series.map((one) => {
      const who = looks[one.p], name = label(who.name);
      return {
        type: "box", orientation: "h", x: one.values, y: one.values.map(() => name), boxpoints: "all", jitter: 0.5, pointpos: 0, name, width: 0.6,
        marker: { color: who.colour, size: 5, opacity: 0.75 }, line: { color: who.colour, width: 1.2 }, fillcolor: faint(who.colour, 0.12),
        hovertemplate: `<b>${name}</b><br>%{x:.5~g}<extra></extra>`, hoveron: "points",
      };
    });
    const vertical = { ...axis("", false, theme), type: "category", showgrid: false, tickfont: { size: 12, color: theme.ink }, nticks: 0, tickmode: "linear" };
    const name = data.x || spec.x || "";
    return { traces, layout: frame(theme, axis(name, spec.logX, theme, series.flatMap((one) => one.values)), vertical), height: 80 + 34 * Math.max(1, series.length) };
  },
};

function padded(values) {
  if (values.length === 0) return [0, 1];
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * 0.16;
  return [low - room, high + room];
}

// Annotations with the names of points, each where it lies on no other point or name; names without such a place stay away.
// A name beside its own point is 1 pixel off the point's box, since the sums are rounded.
function place(points, xrange, yrange, width, height, theme) {
  const px = (point) => ((point.x - xrange[0]) / (xrange[1] - xrange[0])) * width;
  const py = (point) => (1 - (point.y - yrange[0]) / (yrange[1] - yrange[0])) * height;
  const taken = points.map((point) => [px(point) - 6, py(point) - 6, px(point) + 6, py(point) + 6]), made = [];
  for (const point of points) {
    const wide = Math.min(point.name.length, 30) * 6.1 + 4, tall = 14, x = px(point), y = py(point);
    for (const [dx, dy] of [[0, -15], [wide / 2 + 10, 0], [-wide / 2 - 10, 0], [0, 15], [wide / 2 + 7, -12], [-wide / 2 - 7, -12], [wide / 2 + 7, 12], [-wide / 2 - 7, 12], [0, -30], [0, 30]]) {
      const box = [x + dx - wide / 2, y + dy - tall / 2, x + dx + wide / 2, y + dy + tall / 2];
      const inside = box[0] > 0 && box[2] < width && box[1] > 0 && box[3] < height;
      if (!inside || taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
      taken.push(box);
      const text = point.name.length > 30 ? `${point.name.slice(0, 28)}…` : point.name;
      made.push({ x: point.x, y: point.y, xshift: dx, yshift: -dy, text: label(text), showarrow: false, font: { size: 11, color: theme.ink } });
      break;
    }
  }
  return made;
}

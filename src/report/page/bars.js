/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawings that are rows of a table: label, bar or interval, number. The numbers are in the cells; the
 * drawings are hidden from screen readers.
 */
const BAR = { viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": "true" };

function barRow(label, className, part, ...number) {
  return h("tr", {}, h("th", { scope: "row" }, label), h("td", {}, svg("svg", BAR,
    svg("rect", { class: "bar " + className, y: 2, width: 1000 * part, height: 16 }))),
  h("td", { class: "n" }, number));
}

function bars(caption, rows) {
  return h("table", { class: "bars" }, h("caption", { class: "hidden" }, caption),
    h("tbody", {}, rows));
}

/* ---- funnel ---- */
function funnel(problem, meanings) {
  const f = problem.funnel, most = f.space || f.in_budget || 1;
  const steps = [["space", f.space], ["in budget", f.in_budget], ["compiled", f.compiled],
    ["clean cubin", f.clean]];
  if (f.on_device) steps.push(["proved", f.proved], ["measured", f.measured]);
  return h("section", { class: "panel" }, h("h4", {}, "Funnel"),
    f.space ? null : small("Only configs on record are counted: the templates have changed since, so the " +
      "size of the whole space is not known."),
    bars("How many configs came how far", steps.filter(([, value]) => value >= 0)
      .map(([label, value]) => barRow(label, "", value / most, grouped(value)))),
    f.on_device ? null : h("p", { class: "small" },
      "Nothing was timed on a device" + (!problem.winner ? "."
        : problem.winner.predicted_us > 0 ? ": the model ranks the clean ones."
          : ", and no model ranks the clean ones.")),
    problem.gates.length === 0 ? null : sortable({
      label: "Gates", caption: "Where configs ended and why", rows: problem.gates, className: "stacked",
      columns: [
        { head: "ended at", row: true, cell: (gate) => gate.status },
        { head: "configs", number: true, value: (gate) => gate.count,
          cell: (gate) => grouped(gate.count) },
        { head: "why, with examples", className: "wide small", cell: (gate) => [
          meanings.get(gate.status) || "", gate.reasons.map(({ count: configs, reason }) =>
            [h("br"), soft(grouped(configs) + "× "), reason]),
          gate.other_reasons ? [h("br"), soft(grouped(gate.other_reasons) + " with other reasons")] : null] },
      ],
    }));
}

/* ---- the race ---- */
const NEAR = 1.25; /* times the best: drawn to scale */
const RACE_ROWS = 24;

/* Those of the last race; else the measured; else those that the model ranks. overlapping: those of a race whose
 * intervals overlap the best one's. */
function raceOf(problem) {
  const finished = problem.configs.filter((config) => config.rank > 0);
  const measured = finished.some((config) => config.median_us > 0);
  const raced = finished.some((config) => config.raced);
  const wanted = finished.filter((config) => (!raced || config.raced) &&
    (measured ? config.median_us > 0 : config.predicted_us > 0));
  const rows = wanted.slice(0, raced ? RACE_ROWS : RACE_ROWS / 2);
  const left = problem.configs_left_out > 0 ? 0 : wanted.length - rows.length;
  const overlapping = raced ? wanted.filter((row) => !row.winner && level(row, wanted[0])) : [];
  return { rows, measured, raced, left, overlapping };
}

/* The axis holds those that come near the best: one far behind (the default config is always raced)
 * would squeeze them to one point. */
function raceAxis(rows) {
  const near = rows.filter((row, i) => i === 0 || row.high_us <= rows[0].median_us * NEAR);
  const low = Math.min(...near.map((row) => row.low_us));
  const high = Math.max(...near.map((row) => row.high_us));
  const margin = (high - low) * 0.3 || high * 0.01;
  return { low: Math.max(0, low - margin), high: high + margin, beyond: 0 };
}

function interval(axis, best, row) {
  const place = (us) => 1000 * (us - axis.low) / (axis.high - axis.low);
  if (row.low_us > axis.high || row.high_us > best.median_us * NEAR)
    return h("span", { class: "soft small beyond" }, "beyond this axis →");
  const samples = (row.samples_us || []).map(place);
  const inside = samples.filter((x) => x >= 0 && x <= 1000);
  axis.beyond += samples.length - inside.length;
  const [low, high] = [place(row.low_us), place(row.high_us)];
  return svg("svg", BAR,
    svg("path", { class: "reference", d: "M" + place(best.median_us) + " 0v20" }),
    svg("path", { class: "sample", d: inside.map((x) => "M" + x.toFixed(1) + " 4v12").join("") }),
    svg("rect", { class: "interval", x: low, y: 2, width: Math.max(high - low, 2), height: 16 }),
    svg("path", { class: "median", d: "M" + place(row.median_us) + " 1v18" }));
}

/* What tells these rows from one another, and what they all have. */
function differences(rows) {
  const names = different(rows.flatMap((row) => Object.keys(row.config.tunables)));
  const values = (name) => different(rows.map((row) => row.config.tunables[name]));
  const shared = names.filter((name) => values(name).length === 1);
  return { families: different(rows.map((row) => row.config.family)).length > 1,
    varying: names.filter((name) => !shared.includes(name)),
    shared: shared.map((name) => name + "=" + values(name)[0]).join(" ") };
}

function race(problem) {
  const { rows, measured, raced, left, overlapping } = raceOf(problem);
  if (rows.length < 2) return null;
  const best = rows[0], axis = measured ? raceAxis(rows) : null;
  const most = Math.max(...rows.map((row) => row.predicted_us || 0));
  const tell = differences(rows);
  const lines = rows.map((row) => h("tr", {},
    h("th", { scope: "row" }, configButton(problem, row, "config", "#" + row.rank),
      tell.families ? " " + row.config.family : "",
      tell.varying.filter((name) => name in row.config.tunables).map((name) =>
        [" ", soft(name), "\u00a0" + row.config.tunables[name]])),
    h("td", {}, measured ? interval(axis, best, row) : svg("svg", BAR, svg("rect",
      { class: "bar predicted", y: 2, width: 1000 * row.predicted_us / most, height: 16 }))),
    h("td", { class: "n" }, time(row), row.winner ? [" ·\u00a0", h("strong", {}, "winner")]
      : overlapping.includes(row) ? " ·\u00a0overlaps\u00a0#" + best.rank : "", row.default ? " ·\u00a0default" : "")));
  return h("section", { class: "panel whole" },
    h("h4", {}, raced ? "The race" : measured ? "Probes"
      : ["Prediction ", h("span", { class: "badge predicted" }, "predicted")]),
    small(raced ? "Finalists, timed in turn: a thin tick is one sample, the band is the 95% interval of the " +
      "samples’ median, the line is the median, without what slowed all kernels of a round alike." +
      (rows.some((row) => row.median_us < best.median_us) ? " Medians within 0.5% of the least are a tie: the default " +
        "config wins it, else the config with less shared memory." : "")
      : measured ? "Each timed by itself, not in a race: differences of a few percent mean nothing. " +
        "Ticks are samples, the band is the median’s 95% interval."
        : "Nothing was measured here. These are the model’s guesses, best first.",
    tell.shared ? [" All have ", h("span", { class: "mono" }, tell.shared), "."] : ""),
    h("table", { class: "bars race", "data-keys": true },
      h("caption", { class: "hidden" }, "Times of the best configs"), h("tbody", {}, lines),
      measured ? h("tfoot", {}, h("tr", {}, h("td"), h("td", {}, h("div", { class: "axis" },
        h("span", {}, microseconds(axis.low)), h("span", {}, microseconds(axis.high)))), h("td"))) : null),
    measured ? small("The axis does not begin at zero; the dotted line is #" + best.rank + "’s median." +
      (axis.beyond > 0 ? " " + count(axis.beyond, "sample") +
        (axis.beyond === 1 ? " lies" : " lie") + " beyond its ends." : "")) : null,
    left > 0 ? small(count(left, "slower one") + " not drawn.") : null);
}

/* ---- against others ---- */
/* The parts of the peers' sources that all of them have, and those of one. */
function sourcesOf(peers) {
  const parts = (peer) => (peer.source || "").split(", ").filter(Boolean);
  const shared = peers.length === 0 ? [] : parts(peers[0]).filter((part) =>
    peers.every((peer) => parts(peer).includes(part)));
  return { shared: shared.join(", "),
    own: (peer) => parts(peer).filter((part) => !shared.includes(part)).join(", ") };
}

function others(problem) {
  if (problem.baselines.length === 0 && !(problem.default_us > 0)) return null;
  const most = Math.max(problem.us, problem.default_us || 0,
    ...problem.baselines.map((peer) => peer.median_us));
  const times = (us) => {
    if (!(problem.us > 0)) return "";
    const value = us / problem.us;
    return [" · ", h("span", { class: problem.timed ? mood(value) : "guess" },
      (problem.timed ? "" : "~") + ratio(value))];
  };
  const rows = [], sources = sourcesOf(problem.baselines);
  if (problem.us > 0)
    rows.push(barRow("fa-tune" + (problem.timed ? "" : ", predicted"),
      problem.timed ? "" : "predicted", problem.us / most, time(problem.winner)));
  if (problem.default_us > 0)
    rows.push(barRow("the family’s default", "default", problem.default_us / most,
      microseconds(problem.default_us), times(problem.default_us)));
  for (const peer of problem.baselines)
    rows.push(barRow([peer.name, sources.own(peer) ? [h("br"), soft(sources.own(peer).split(/(?=\+)/)
      .map((part, i) => [i > 0 ? h("wbr") : null, part]))] : null], "peer",
      peer.median_us / most, microseconds(peer.median_us), times(peer.median_us)));
  return h("section", { class: "panel" }, h("h4", {}, "fa-tune against others"),
    small("Shorter is faster. × is a kernel’s time divided by fa-tune’s: above 1, fa-tune is faster."),
    bars("Times of fa-tune, of the default config and of other kernels", rows),
    problem.baselines.length === 0 ? small("No baseline is stored for this problem.")
      : sources.shared ? small("The others: " + sources.shared + ".") : null);
}

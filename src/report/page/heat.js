/* SPDX-License-Identifier: Apache-2.0
 *
 * Heat maps: two tunables of a family by one another for each value of a third, in each cell the config
 * that ranks first: of those in the race, else of the probes. Steps of colour are ratios to the
 * problem's best, the same in every map; the numbers are in the cells, so that no colour needs to be
 * told from another. A cell without a time says at which gate the configs that came furthest ended.
 */
const STEPS = [[1.02, "to 1.02×"], [1.05, "1.05×"], [1.1, "1.1×"], [1.2, "1.2×"], [1.4, "1.4×"],
  [1.7, "1.7×"], [2.5, "2.5×"], [Infinity, "slower"]];

const CELLS_MAX = 1024;

/* A map for each family that has two times or more: its first three tunables, and of each of their values the config
 * that comes first, which is the best. */
function mapsOf(problem) {
  const races = problem.timed && problem.winner.raced;
  return groupsOf(problem.space, (row) => row.config.family).map(([family, rows]) => {
    const axes = Object.keys(rows[0].config.tunables).slice(0, 3), cells = new Map();
    for (const { config, status, us, raced, record } of rows) {
      const at = axes.map((name) => config.tunables[name]), key = JSON.stringify(at);
      if (!at.includes(undefined) && !cells.has(key))
        cells.set(key, { at, status, us, record, probe: races && status === "measured" && !raced });
    }
    return { family, axes, cells: [...cells.values()].slice(0, CELLS_MAX), cut: cells.size > CELLS_MAX };
  }).filter(({ cells }) => cells.filter((cell) => cell.us > 0).length > 1);
}

function heatCell(problem, cell) {
  if (!cell) return h("td", {}, h("span", { class: "gone" }, "·"));
  if (!(cell.us > 0))
    return h("td", {}, h("span", { class: "gone" },
      cell.status === "constraint" || cell.status === "does-not-pay" ? NONE : cell.status));
  const config = cell.record, measured = cell.status === "measured";
  const step = STEPS.findIndex(([limit]) => cell.us <= problem.us * limit);
  const best = config && config.winner;
  const text = (measured ? "" : "~") +
    (cell.us < 9.995 ? cell.us.toFixed(2) : cell.us < (measured ? 999.95 : 99.95) ? cell.us.toFixed(1)
      : cell.us.toFixed(0)) + (best ? " ★" : cell.probe ? " ᵖ" : "");
  return h("td", {}, configButton(problem, config,
    "h" + step + (measured ? "" : " predicted") + (best ? " best" : ""), text));
}

function heatMap(problem, map, third) {
  const [down, across = ""] = map.axes, { cells } = map;
  const own = cells.filter((cell) => cell.at[2] === third);
  const rows = inOrder(different(cells.map((cell) => cell.at[0])));
  const columns = inOrder(different(cells.map((cell) => cell.at[1])));
  return h("div", {}, h("table", { class: "heat", "data-keys": true },
    h("caption", {}, third === undefined ? map.family : map.axes[2] + " " + third),
    h("thead", {}, h("tr", {}, h("td"), columns.map((value) => h("th", { scope: "col" },
      h("span", { class: "hidden" }, across + " "), value === undefined ? "" : value)))),
    h("tbody", {}, rows.map((row) => h("tr", {},
      h("th", { scope: "row" }, h("span", { class: "hidden" }, down + " "), row),
      columns.map((column) => heatCell(problem, own.find((cell) =>
        cell.at[0] === row && cell.at[1] === column))))))));
}

function heat(problem) {
  const races = problem.timed && problem.winner.raced;
  const maps = mapsOf(problem);
  if (maps.length === 0) return null;
  return h("section", { class: "panel whole" }, h("h4", {}, "Heat map"),
    small("Each cell shows the best config with its values", races
      ? ", by the time in the race, or by a probe (ᵖ) where none of them raced. Probes are timed one by one while the " +
        "GPU’s clock varies, so a probe below ★ may not be faster" : problem.timed ? ""
      : [", by the ", h("em", {}, "model"), ": none was measured, hence the ~"],
    ". A word instead of a number says what stopped the configs of that cell. Arrow " +
    "keys move between cells, Enter opens a record."),
    maps.map((map) => [
      h("p", { class: "small" }, h("span", { class: "mono" }, map.family), ": ", map.axes[0], " down",
        map.axes[1] ? ", " + map.axes[1] + " across" : "", ", µs",
        map.cut ? "; only the first cells are drawn" : "", "."),
      h("div", { class: "maps" }, inOrder(different(map.cells.map((cell) => cell.at[2])))
        .filter((third) => map.cells.some((cell) => cell.at[2] === third && cell.us > 0))
        .map((third) => heatMap(problem, map, third)))]),
    h("ul", { class: "key", "aria-label": "Steps of colour" }, h("li", {}, "times the best:"),
      STEPS.map(([, name], i) => h("li", { class: "h" + i }, name)), h("li", {}, "★ winner"),
      races ? h("li", {}, "ᵖ probe") : null, h("li", {}, "– impossible, or known to be slower")));
}

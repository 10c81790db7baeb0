/* SPDX-License-Identifier: Apache-2.0
 *
 * The field's chart: TFLOP/s over length, a line each for fa-tune and for every baseline, one panel for
 * problems that differ in their length alone, beside what a matrix product reached where that is known.
 */
const PANELS_MAX = 12;

/* Curves are fa-tune's, then the baselines' in the order of the report's. */
function curvesOf(group, peers) {
  const ours = group.problems.filter(([, problem]) => problem.tflops > 0).map(([x, problem]) =>
    ({ x, y: problem.tflops, problem, timed: problem.timed, us: problem.us }));
  const curves = [{ name: "fa-tune", index: 0, points: ours }];
  peers.forEach(({ peer: id, name }, i) => {
    const points = [];
    for (const [x, problem] of group.problems) {
      const peer = problem.baselines.find((one) => one.peer === id);
      if (peer && problem.flops > 0)
        points.push({ x, y: problem.flops / peer.median_us * 1e-6, problem, timed: true,
          us: peer.median_us });
    }
    curves.push({ name, index: i + 1, points });
  });
  return curves.filter((curve) => curve.points.length > 0);
}

/* A line through measured points is whole, one to or from a prediction is broken. */
function strokes(frame, curve) {
  const paths = { true: "", false: "" };
  for (let i = 1; i < curve.points.length; i++) {
    const [a, b] = [curve.points[i - 1], curve.points[i]];
    paths[a.timed && b.timed] += "M" + frame.x(a.x) + " " + frame.y(a.y) +
      "L" + frame.x(b.x) + " " + frame.y(b.y);
  }
  return [true, false].filter((timed) => paths[timed]).map((timed) =>
    svg("path", { class: "line c" + curve.index % 7 + (timed ? "" : " broken"), d: paths[timed] }));
}

/* Every length, but none so near to the one before that their numbers would touch. */
function lengthTicks(frame, lengths) {
  const ticks = [];
  let last = -100;
  for (const length of lengths) {
    if (frame.x(length) - last < 10 + 7 * shortLength(length).length) continue;
    ticks.push(length);
    last = frame.x(length);
  }
  return ticks;
}

function lengthPanel(group, curves, most) {
  const lengths = inOrder(different(curves.flatMap((curve) => curve.points.map((p) => p.x))));
  const ends = [lengths[0], lengths[lengths.length - 1]];
  const margin = Math.pow(ends[1] / ends[0], 0.06);
  const product = productOf(group, most), steps = roundSteps(Math.max(most, product), 4);
  const digits = Math.max(...steps.map((step) => plainNumber(step).length));
  const frame = new Frame({ width: 320, height: 220, left: Math.max(50, 22 + 7 * digits) },
    { low: ends[0] / margin, high: ends[1] * margin, log: true }, { low: 0, high: steps[steps.length - 1] });
  const words = curves.map((curve) => curve.name + " " + tflops(curve.points[0].y) + " to " +
    tflops(curve.points[curve.points.length - 1].y)).join(", ");
  return h("figure", {}, h("figcaption", {}, group.title),
    picture({ class: "chart", viewBox: "0 0 320 220" }, "TFLOP/s over length: " + group.title,
      words + " TFLOP/s from " + group.label + " " + grouped(ends[0]) + " to " + grouped(ends[1]),
      frame.grid("x", lengthTicks(frame, lengths), shortLength), frame.grid("y", steps, plainNumber),
      frame.names(group.axis, "TFLOP/s"), product > 0 ? svg("path", { class: "product dashed",
        d: "M" + frame.left + " " + frame.y(product) + "h" + frame.inner.width }) : null,
      curves.slice().reverse().map((curve) => [strokes(frame, curve), curve.points.map((point) =>
        mark(curve.index, frame.x(point.x), frame.y(point.y),
          "mark c" + curve.index % 7 + (point.timed ? "" : " hollow"),
          svg("title", {}, curve.name + (point.timed ? ": " : ", predicted: ~") + tflops(point.y) +
            " TFLOP/s at " + group.label + " " + grouped(point.x))))])));
}

/* What a matrix product reached in the run of these problems' baselines; 0: not known, or so far above `most` that
 * the curves would lie at the bottom. */
function productOf(group, most) {
  const product = Math.max(...group.problems.map(([, problem]) => problem.product));
  return product > 3 * most ? 0 : product;
}

function legend(curves, products = []) {
  const key = (name, ...drawn) => h("li", {},
    svg("svg", { viewBox: "0 0 28 12", width: 28, height: 12, "aria-hidden": "true" }, drawn), name);
  return h("ul", { class: "legend" }, curves.map((curve) => key(curve.name,
    svg("path", { class: "line c" + curve.index % 7, d: "M1 6h26" }),
    mark(curve.index, 14, 6, "mark c" + curve.index % 7))),
  products.length > 0 ? key("a matrix product of 8192³ in the baselines’ run: " + products.join(", "),
    svg("path", { class: "line dashed", d: "M1 6h26" })) : null);
}

function numbersTable(panels) {
  const names = different(panels.flatMap(({ curves }) => curves.map((curve) => curve.name)));
  const rows = panels.flatMap(({ group, curves }) => {
    const lengths = inOrder(different(curves.flatMap((curve) => curve.points.map((p) => p.x))));
    return lengths.map((x) => h("tr", {},
      h("th", { scope: "row" }, [group.title, group.label + " " + grouped(x)].filter(Boolean).join(", ")),
      names.map((name) => {
        const curve = curves.find((one) => one.name === name);
        const point = curve && curve.points.find((one) => one.x === x);
        return h("td", { class: "n" }, !point ? NONE : point.timed ? tflops(point.y)
          : guess("~" + tflops(point.y)));
      })));
  });
  return h("details", {}, h("summary", {}, "Numbers of these charts"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers" },
      h("table", {}, h("caption", { class: "hidden" }, "TFLOP/s over length"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "problem"),
          names.map((name) => h("th", { scope: "col", class: "n" }, name)))),
        h("tbody", {}, rows))));
}

/* Of these problems, those on the GPU that most of them are for. NULL: there is no curve. */
function lengthCharts(problems, peers) {
  const silicons = new Map();
  for (const problem of problems)
    if (problem.tflops > 0) {
      const weight = problem.timed ? 1000 : 1;
      silicons.set(problem.silicon, (silicons.get(problem.silicon) || 0) + weight);
    }
  if (silicons.size === 0) return null;
  const [silicon] = [...silicons].reduce((a, b) => b[1] > a[1] ? b : a);
  const here = problems.filter((problem) => problem.silicon === silicon);
  const panels = families(here).map((group) => ({ group, curves: curvesOf(group, peers) }))
    .filter(({ curves }) => curves.some((curve) =>
      different(curve.points.map((point) => point.x)).length > 1));
  if (panels.length === 0) return null;
  const shown = panels.slice(0, PANELS_MAX);
  const left = here.length - panels.flatMap(({ group }) => group.problems).length;
  const most = Math.max(...shown.flatMap(({ curves }) =>
    curves.flatMap((curve) => curve.points.map((point) => point.y))));
  const curves = new Map(shown.flatMap((panel) => panel.curves).map((one) => [one.index, one]));
  return h("section", { "aria-labelledby": "lengths-h", id: "lengths" },
    h("h2", { id: "lengths-h" }, "TFLOP/s over length"),
    small(gpuWords(here[0].gpu), silicons.size > 1 ? ", of " + count(silicons.size, "GPU type") +
      ": choose another one above. " : ". ", "Higher is faster.",
    curves.size > 0 && here.some((p) => p.tflops > 0 && !p.timed)
      ? " Hollow marks and broken lines are predicted." : "",
    panels.length > shown.length ? " The first " + shown.length + " of " + panels.length +
      " groups are drawn: choose fewer problems above." : "",
    left > 0 ? " Not drawn: " + count(left, "problem") + " of a single length." : ""),
    legend([...curves.values()].sort((a, b) => a.index - b.index),
      different(shown.filter(({ group }) => productOf(group, most) > 0)
        .map(({ group }) => tflops(productOf(group, most)) + " TFLOP/s in " + group.problems[0][1].problem.dtype))),
    h("div", { class: "figures" }, shown.map(({ group, curves: own }) =>
      lengthPanel(group, own, most))), numbersTable(shown));
}

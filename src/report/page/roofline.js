/* SPDX-License-Identifier: Apache-2.0
 *
 * Rooflines: TFLOP/s over FLOP per byte that must move at least, both axes logarithmic, under that GPU's
 * ceilings (its rated dense tensor rate; memory bandwidth, which is all that fp32 inputs have). A matrix product's
 * rate is drawn dashed, beside one problem.
 */
function roof({ gpu, reads_fp32 }, marks, width, product) {
  const slope = gpu.bandwidth_gbs / 1000;
  const peak = reads_fp32 ? slope * 2 * Math.max(...marks.map((one) => one.x)) : gpu.tensor_tflops;
  const ridge = peak / slope;
  const xs = marks.map((one) => one.x).concat(ridge), ys = marks.map((one) => one.y);
  const [across, up] = [decades(Math.min(...xs) / 2, Math.max(...xs) * 1.5),
    decades(Math.min(...ys, peak / 4) / 1.2, peak * 1.2)];
  const ends = (values) => ({ low: values[0], high: values[values.length - 1], log: true });
  const frame = new Frame({ width, height: 290, right: 14 }, ends(across), ends(up));
  const { x: ax, y: ay } = frame.axes;
  const from = Math.max(ax.low, ay.low / slope);
  const [x, y] = [frame.x(from), frame.y(from * slope)];
  const [rx, ry] = [frame.x(ridge), frame.y(peak)];
  const degrees = Math.atan2(ry - y, rx - x) * 180 / Math.PI;
  frame.drawn = [frame.grid("x", across, plainNumber), frame.grid("y", up, plainNumber),
    frame.names("FLOP per byte that must move", "TFLOP/s"),
    svg("path", { class: "ceiling", d: "M" + x + " " + y + "L" + rx + " " + ry +
      "H" + (frame.width - frame.right) }),
    reads_fp32 ? null : svg("text", { x: frame.width - frame.right, y: ry - 6, "text-anchor": "end" },
      "tensor cores " + grouped(peak) + " TFLOP/s"),
    product > 0 ? [svg("path", { class: "dashed", d: "M" + frame.x(product / slope) + " " + frame.y(product) + "H" + (frame.width - frame.right) }),
      svg("text", { x: frame.width - frame.right, y: frame.y(product) + 14, "text-anchor": "end" },
        "a matrix product " + grouped(product))] : null,
    svg("text", { "text-anchor": "middle", transform: "translate(" + ((x + rx) / 2 - 5) + " " +
      ((y + ry) / 2 - 6) + ") rotate(" + degrees + ")" },
    "memory " + grouped(gpu.bandwidth_gbs) + " GB/s")];
  return frame;
}

/* Marks with their names, which are moved apart and led back to what they name. */
function namedMarks(frame, marks) {
  const labels = spread(marks.map((one) => ({ one, y: frame.y(one.y) + 4 })), 15,
    frame.height - frame.bottom - 4);
  return [labels.map(({ one, y }) => {
    const x = frame.x(one.x), right = x < frame.left + frame.inner.width * 0.6;
    const at = x + (right ? 22 : -22);
    return [svg("path", { class: "leader", d: "M" + x + " " + frame.y(one.y) + "L" +
      (at + (right ? -3 : 3)) + " " + (y - 4) }),
    svg("text", { class: one.timed ? null : "guess", x: at, y,
      "text-anchor": right ? "start" : "end" },
    one.name + (one.timed ? " " : " ~") + tflops(one.y))];
  }), marks.slice().reverse().map((one) => /* fa-tune over the others */
    mark(one.form, frame.x(one.x), frame.y(one.y), one.className))];
}

function rooflineOf(problem) {
  if (!(problem.tflops > 0 && problem.intensity > 0)) return null;
  if (!problem.limit)
    return h("section", { class: "panel" }, h("h4", {}, "Roofline"),
      small("This GPU’s ceilings are not known."));
  const x = problem.intensity, rate = (us) => problem.flops / us * 1e-6;
  const marks = [{ x, y: problem.tflops, form: 0, timed: problem.timed,
    name: problem.timed ? "fa-tune" : "fa-tune, " + knownHow(problem),
    className: "mark c0" + (problem.timed ? "" : " hollow") }];
  if (problem.default_us > 0)
    marks.push({ x, y: rate(problem.default_us), form: 2, timed: true, name: "default",
      className: "mark plain" });
  for (const peer of problem.baselines.slice(0, 8))
    marks.push({ x, y: rate(peer.median_us), form: 1, timed: true, name: peer.name,
      className: "mark c1" });
  const frame = roof(problem, marks, 440, problem.product);
  return h("section", { class: "panel" }, h("h4", {}, "Roofline"),
    picture({ class: "chart roof", viewBox: "0 0 440 290" }, "Roofline",
      "fa-tune, " + knownHow(problem) + (problem.timed ? " " : ", about ") + tflops(problem.tflops) +
      " TFLOP/s at " + grouped(x) + " FLOP per byte; the ceiling there is " +
      grouped(problem.limit.tflops) + " TFLOP/s.", frame.drawn, namedMarks(frame, marks)),
    h("p", { class: "small" }, told(problem, percent(problem.part)), " of the ceiling; at least " +
      bytes(problem.least_bytes) + " must move, ", told(problem,
      grouped(problem.least_bytes / problem.us * 1e-3) + " GB/s"), " at this time."));
}

const LINKS_MAX = 300; /* marks that are links; more are drawn as one shape */
const SERIES_MAX = 4;  /* lines of one drawing, where problems can be told apart by a field */
const DRAWINGS_MAX = 12;
const NAMED_MAX = 24;  /* lines that are named; of more a mark names itself when it is pointed at */

function linkedMarks(frame, group, form) {
  return group.problems.map(([, problem]) => {
    const name = problem.words + ": " + (problem.timed ? "" : "~") + tflops(problem.tflops) +
      " TFLOP/s, " + knownHow(problem);
    return svg("a", { href: "#p" + problem.number, "aria-label": name },
      mark(form, frame.x(problem.intensity), frame.y(problem.tflops),
        "mark c" + form % 7 + (problem.timed ? "" : " hollow"), svg("title", {}, name)));
  });
}

function dots(frame, group, form) {
  return [true, false].map((timed) => svg("path", {
    class: "mark c" + form % 7 + (timed ? "" : " hollow"),
    d: group.problems.filter(([, problem]) => problem.timed === timed).map(([, problem]) =>
      "M" + (frame.x(problem.intensity) - 2.5).toFixed(1) + " " +
      frame.y(problem.tflops).toFixed(1) + "a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0").join("") }));
}

/* Of the fields by which groups of problems differ, the one whose values share a drawing: a mask rather than a
 * type or a size, and few values. */
function sharedField(points) {
  const fields = fieldsOf(points).filter((field) => !field.length || field.feature).map((field) => ({ field,
    values: different(points.map((problem) => valueOf(problem, field)).filter((value) => value !== undefined)).length }))
    .filter(({ field, values }) => field.shapes_source && values > 1 && values <= SERIES_MAX);
  const last = fields.findLast(({ field }) => field.label && field.kind !== "integer") || fields[fields.length - 1];
  return last && last.field;
}

/* Every problem of a GPU in drawings of a few lines each: a line goes through those that differ in their length
 * alone, and each mark is a link to its problem. */
function rooflinesOfAll(problems) {
  const points = problems.filter((problem) => problem.limit && problem.tflops > 0);
  if (points.length < 2) return [];
  const groups = families(points), shared = groups.length > SERIES_MAX ? sharedField(points) : null;
  const drawings = new Map();
  for (const group of groups) {
    const value = shared ? valueOf(group.problems[0][1], shared) : undefined;
    const name = value === undefined ? group.title : fieldWords(shared, value);
    const rest = shared ? group.title.split(", ").filter((part) => part !== name).join(", ") : "";
    drawings.set(rest, [...(drawings.get(rest) || []), { ...group, name }]);
  }
  return [...drawings].slice(0, DRAWINGS_MAX).map(([rest, some]) =>
    underRoof(points, some, [gpuWords(points[0].gpu), rest].filter(Boolean).join(", ")));
}

/* Lines of some groups under the roof of all points. */
function underRoof(points, groups, caption) {
  const linked = points.length <= LINKS_MAX;
  const frame = roof(points[0], points.map((p) => ({ x: p.intensity, y: p.tflops })), 560);
  const place = (problem) => frame.x(problem.intensity).toFixed(1) + " " +
    frame.y(problem.tflops).toFixed(1);
  const drawing = svg("svg", { class: "chart roof", viewBox: "0 0 560 290", role: "group",
    "aria-label": "Every problem under this GPU’s ceilings" +
      (linked ? "; each mark is a link to its problem" : "") },
  frame.drawn,
  groups.map((group, i) => [svg("path", { class: "line thin c" + i % 7,
    d: "M" + group.problems.map(([, problem]) => place(problem)).join("L") }),
  linked ? linkedMarks(frame, group, i) : dots(frame, group, i)]));
  return h("figure", {}, h("figcaption", {}, caption), drawing,
    groups.length > 1 && groups.length <= NAMED_MAX
      ? legend(groups.map((group, i) => ({ name: group.name, index: i }))) : null,
    linked ? null : small("Too many for links: choose fewer problems above."));
}

function rooflines(problems) {
  const figures = different(problems.map((problem) => problem.silicon)).slice(0, 12)
    .map((silicon) => problems.filter((problem) => problem.silicon === silicon))
    .flatMap((here) => [here.filter((one) => !one.reads_fp32), here.filter((one) => one.reads_fp32)])
    .flatMap(rooflinesOfAll);
  if (figures.length === 0) return null;
  return h("section", { "aria-labelledby": "roofs" }, h("h2", { id: "roofs" }, "Rooflines"),
    small("Filled marks were measured, hollow ones are predicted; each is a link to its problem."),
    h("div", { class: "figures roofs" }, figures));
}

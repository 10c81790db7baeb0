/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters, and the list of problems that they leave.
 */
const ROWS_MAX = 100, ROWS_NARROW = 12; /* at first; a button shows the rest */
const CHOICES_MAX = 60; /* of a filter; what has more is found by its words */

/* The columns of the list, and in words what all problems have alike, which has no column. */
function columnsOf(problems, peers) {
  const times = (head, value) => ({ head, number: true, value, cell: (problem) => {
    const known = value(problem);
    if (!(known > 0)) return NONE;
    return h("span", { class: problem.timed ? mood(known) : "guess" },
      (problem.timed ? "" : "~") + ratio(known));
  } });
  const only = (values) => problems.length > 1 && different(values).length === 1;
  const winners = problems.map((problem) => problem.winner).filter(Boolean);
  const kernels = differences(winners), whole = kernels.varying.length === 0;
  const oneGpu = only(problems.map((problem) => problem.gpu.name));
  const oneHow = only(problems.map((problem) => problem.known_how));
  const kernel = whole ? "" : [kernels.families ? "" : winners[0].config.family,
    kernels.shared].filter(Boolean).join(" ");
  const alike = [oneGpu && problems[0].gpu.name, oneHow && howWords(problems[0].known_how),
    kernel && h("span", { class: "mono" }, kernel)].filter(Boolean);
  const columns = [
    { head: "problem", row: true, value: (problem) => problem.words,
      cell: (problem) => [h("a", { href: "#p" + problem.number }, unbroken(problem.words)),
        problem.slow ? [" ", slowBadge()] : null] },
    { head: "kernel", className: "mono", cell: (problem) => !problem.winner ? NONE : whole
      ? configWords(problem.winner.config)
      : [kernels.families ? problem.winner.config.family : "", ...kernels.varying
        .filter((name) => name in problem.winner.config.tunables)
        .map((name) => name + "=" + problem.winner.config.tunables[name])].filter(Boolean).join(" ") },
    oneGpu ? null : { head: "GPU", cell: (problem) => problem.gpu.name },
    oneHow ? null : { head: "known how", cell: (problem) => badge(problem) },
    { head: "time", number: true, value: (problem) => problem.us || undefined,
      cell: (problem) => problem.winner ? time(problem.winner) : NONE },
    { head: "TFLOP/s", number: true, value: (problem) => problem.tflops,
      cell: (problem) => problem.tflops > 0 ? told(problem, tflops(problem.tflops)) : NONE },
    { head: "of\u00a0ceiling", number: true, value: (problem) => problem.part || undefined,
      cell: (problem) => problem.part > 0 ? told(problem, percent(problem.part)) : NONE },
    problems.some((problem) => problem.speedup_over_default > 0)
      ? times("×\u00a0default", (problem) => problem.speedup_over_default) : null,
    ...peers.map(({ peer: id, name }) => times("×\u00a0" + unhyphened(name), (problem) => {
      const peer = problem.baselines.find((one) => one.peer === id);
      return peer && problem.us > 0 ? peer.median_us / problem.us : undefined;
    })),
    only(problems.map((problem) => date(problem.unix_time).slice(0, 10))) || problems.length === 1 ? null
      : { head: "day", className: "small", value: (problem) => problem.unix_time, cell: (problem) => unhyphened(day(problem)) },
  ];
  const shown = columns.filter(Boolean);
  const note = [
    alike.length === 0 ? "" : ["The same in every row: ", alike.map((one, i) => [i > 0 ? " · " : "", one]), ". "],
    problems.some((problem) => problem.timed) ? "± is half the 95% interval of a median. " : "",
    shown.some((column) => column.head.startsWith("×")) ? "× is the time of the kernel named in the head, " +
      "divided by fa-tune’s: above 1, fa-tune is faster. " : ""];
  return { columns: shown, note };
}

/* What "of ceiling" is a part of, on one GPU type. */
function ceilingWords(problems) {
  const known = problems.filter((problem) => problem.limit && problem.part > 0);
  if (known.length === 0) return "";
  const one = different(known.map((problem) => problem.silicon)).length === 1 && known.find((p) => !p.reads_fp32);
  return "“of ceiling” is the share of the TFLOP/s that the GPU could reach at the problem’s FLOP per byte: " +
    (one ? "at most " + tflops(one.gpu.tensor_tflops) + " TFLOP/s, the rate of its tensor cores, and less where memory (" +
      grouped(one.gpu.bandwidth_gbs) + " GB/s) bounds it. "
      : "the rate of its tensor cores, and less where memory bounds it. ");
}

/* What a feature's preset means, as its help says it: "no pages" of a page; "as --head-dim". */
function offWords(field) {
  return (/\b0: (.*)/.exec(field.words) || [])[1] || "none";
}

/* A field's value; that of another field where the preset means this. */
function chosenOf(problem, field) {
  const value = valueOf(problem, field);
  const as = field.feature && value === presetOf(field) && offWords(field).replace(/^as /, "");
  const other = as && problem.operation.fields.find((one) => one.option === as);
  return other ? valueOf(problem, other) : value;
}

/* Filters by what differs among the problems. changed(kept) is called with those that are left. */
function filterBar(problems, peers, changed) {
  const choices = [
    ["GPU", (problem) => problem.gpu.name, (value) => value],
    ["operation", (problem) => problem.operation.title, (value) => value],
    ...fieldsOf(problems).map((field) => [nameOf(field), (problem) => chosenOf(problem, field),
      (value) => field.kind !== "integer" ? fieldWords(field, value)
        : field.feature && value === presetOf(field) ? offWords(field) : grouped(value)]),
    ["known how", (problem) => problem.known_how, howWords],
  ].map(([name, value, words]) => ({ name, value, words,
    values: inOrder(different(problems.map(value).filter((one) => one !== undefined))) }))
    .filter(({ value, values }, i, all) => values.length > 1 && values.length <= CHOICES_MAX && !all.slice(0, i).some((before) =>
      problems.every((problem) => before.value(problem) === value(problem))));
  const selects = choices.map(({ name, values, words }) => h("label", {}, h("span", {}, name),
    h("select", { change: apply, name }, h("option", { value: "" }, "all"),
      values.map((value, i) => h("option", { value: i }, words(value))))));
  const behind = peers.length === 0 ? null : h("label", {}, h("span", {}, "verdict"),
    h("select", { change: apply, name: "verdict" }, h("option", { value: "" }, "all"),
      h("option", { value: "behind" }, "a baseline is faster"),
      h("option", { value: "ahead" }, "fa-tune is fastest")));
  const text = h("label", {}, h("span", {}, "find"),
    h("input", { type: "search", name: "find", input: apply, autocomplete: "off", spellcheck: "false" }));
  const told = h("p", { class: "small soft" });

  function apply(event) {
    const words = text.lastChild.value.toLowerCase().split(/\s+/).filter(Boolean);
    const verdicts = behind && behind.lastChild.value;
    const kept = problems.filter((problem) => choices.every(({ value, values }, i) => {
      const chosen = selects[i].lastChild.value;
      return chosen === "" || value(problem) === values[Number(chosen)];
    }) && (!verdicts || (problem.us > 0 && problem.baselines.length > 0 &&
      (problem.baselines[0].median_us < problem.us) === (verdicts === "behind"))) &&
      words.every((word) => problem.haystack.includes(word)));
    told.textContent = kept.length === problems.length ? count(problems.length, "problem")
      : grouped(kept.length) + " of " + count(problems.length, "problem");
    if (event) announce(told.textContent); /* somebody chose */
    changed(kept);
  }

  for (const problem of problems)
    problem.haystack = [problem.words, problem.gpu.name, problem.known_how,
      problem.winner ? configWords(problem.winner.config) : ""].join(" ").toLowerCase();
  const bar = h("div", { class: "filters", role: "group", "aria-label": "Filters" }, selects, behind,
    text, told);
  bar.apply = () => apply();
  return bar;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters, and the list of problems that they leave.
 */
const ROWS_MAX = 100; /* at first; a button shows the rest */
const CHOICES_MAX = 60; /* of a filter; what has more is found by its words */

function columnsOf(peers) {
  const times = (head, value) => ({ head, number: true, value, cell: (problem) => {
    const known = value(problem);
    if (!(known > 0)) return NONE;
    return h("span", { class: !problem.timed ? "guess" : known >= 1 ? "ahead" : "behind" },
      (problem.timed ? "" : "~") + ratio(known));
  } });
  return [
    { head: "problem", row: true, value: (problem) => problem.words,
      cell: (problem) => h("a", { href: "#p" + problem.number }, problem.words) },
    { head: "GPU", cell: (problem) => problem.gpu.name },
    { head: "known how", cell: badge },
    { head: "time", number: true, value: (problem) => problem.us || undefined,
      cell: (problem) => problem.winner ? time(problem.winner) : NONE },
    { head: "TFLOP/s", number: true, value: (problem) => problem.tflops,
      cell: (problem) => problem.tflops > 0 ? told(problem, tflops(problem.tflops)) : NONE },
    { head: "of limit", number: true, value: (problem) => problem.part || undefined,
      cell: (problem) => problem.part > 0 ? told(problem, percent(problem.part)) : NONE },
    times("× default", (problem) => problem.speedup_over_default),
    ...peers.map((name) => times("× " + name, (problem) => {
      const peer = problem.baselines.find((one) => one.peer === name);
      return peer && problem.us > 0 ? peer.median_us / problem.us : undefined;
    })),
    { head: "tried", number: true, value: (problem) => problem.configs_tried || undefined,
      cell: (problem) => problem.configs_tried > 0 ? grouped(problem.configs_tried) : NONE },
    { head: "compile", number: true, value: (problem) => problem.compile_ms,
      cell: (problem) => seconds(problem.compile_ms / 1000) },
    { head: "tune", number: true, value: (problem) => problem.tune_s,
      cell: (problem) => seconds(problem.tune_s) },
    { head: "winner", className: "mono",
      cell: (problem) => problem.winner ? configWords(problem.winner.config) : NONE },
  ];
}

/* Filters by what differs among the problems. changed(kept) is called with those that are left. */
function filterBar(problems, peers, changed) {
  const choices = [
    ["GPU", (problem) => problem.gpu.name, (value) => value],
    ["operation", (problem) => problem.operation.title, (value) => value],
    ...fieldsOf(problems).map((field) => [nameOf(field),
      (problem) => valueOf(problem, field), (value) => fieldWords(field, value)]),
    ["known how", (problem) => problem.known_how, (value) => value],
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
      h("option", { value: "ahead" }, "ours is fastest")));
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * One problem: which kernel, how sure, how far from the limit, against what else; then the drawings, the
 * circumstances and the configs.
 */
function badge(problem) {
  const how = problem.known_how;
  const kind = how === "failed" || how === "unfinished" ? "bad" : how === "measured" ? "measured"
    : problem.timed ? "second" : "predicted";
  return h("span", { class: "badge " + kind }, howWords(how));
}

function slowBadge() {
  return h("span", { class: "badge bad" }, "⚠ slow: profile");
}

/* A line that a button copies. */
function copyable(name, text) {
  const button = h("button", { type: "button", class: "copy", "aria-label": "Copy the " + name,
    click: async () => {
      let done = true;
      try {
        await navigator.clipboard.writeText(text);
      } catch (refused) { /* where a page may not: by selecting it */
        getSelection().selectAllChildren(code);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "Copied" : "Selected";
      announce("the " + name + " is " + (done ? "copied" : "selected"));
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    } }, "Copy");
  const code = h("code", {}, text.split(/ (?=--|\.|\w+=)/).map((word, i) =>
    [i > 0 ? " " : "", h("span", { class: "word" }, word)])); /* an option stays with its value */
  return h("div", { class: "copyable" }, code, button);
}

/* ---- the four answers ---- */
function whichKernel(problem) {
  return [h("p", { class: "kernel mono" }, configWords(problem.winner.config)),
    copyable("command", commandOf(problem)),
    problem.operation.default ? [copyable("C lines", callsOf(problem)),
      copyable("Python line", pythonOf(problem))] : null];
}

function howSure(problem, report) {
  const winner = problem.winner;
  if (problem.timed) {
    const overlapping = raceOf(problem).overlapping.length;
    const elsewhere = problem.known_how === "imported" ? " Measured elsewhere, and imported."
      : problem.known_how === "measured-same-silicon"
        ? " Measured on another board of this silicon." : "";
    return h("p", {}, h("b", {}, microseconds(winner.median_us)), " ",
      soft(microseconds(winner.low_us), " to ", microseconds(winner.high_us)),
      " is the median with its 95% interval, of " + count(winner.sample_count || 0, "sample") +
      (winner.raced ? " in a race of the finalists" : "") + "." +
      (overlapping > 0 ? " " + count(overlapping, "other config") +
        (overlapping === 1 ? " overlaps it." : " overlap it.") : "") + elsewhere);
  }
  const error = modelError(report.problems, problem.silicon);
  return h("p", {}, h("b", { class: "guess" }, about(problem.us)), " is " + knownHow(problem) +
    ", not measured. ", error
    ? ["Where this report has both, measured times are " + error.low.toFixed(2) + " to " +
      error.high.toFixed(2) + " times the model’s (" + grouped(error.count) + " configs" +
      (error.same ? "" : ", on other GPUs") + "): expect ", guess("~" +
      microseconds(problem.us * error.low) + " to " + microseconds(problem.us * error.high)), "."]
    : "How far the model is off is not known here: this report has no measured times beside it.");
}

function howFar(problem) {
  const limit = problem.limit;
  if (!(problem.tflops > 0)) return h("p", {}, NONE);
  const rate = [h("b", { class: problem.timed ? null : "guess" },
    (problem.timed ? "" : "~") + tflops(problem.tflops)), " TFLOP/s"];
  if (!limit) return h("p", {}, rate, ". This GPU’s ceilings are not known.");
  return [h("p", {}, rate, ", ", told(problem, percent(problem.part)), " of the " +
    tflops(limit.tflops) + " TFLOP/s that " + (limit.by === "memory" ? "memory bandwidth allows"
    : "the tensor cores are rated for") + " at " + grouped(problem.intensity) + " FLOP per byte." +
    (problem.product > 0 ? " A matrix product of 8192³ in this type reached " + tflops(problem.product) +
      " TFLOP/s in the baselines’ run." : "")),
  svg("svg", { class: "meter", ...BAR }, svg("rect", { class: "track", width: 1000, height: 20 }),
    svg("rect", { class: "bar" + (problem.timed ? "" : " predicted"), height: 20,
      width: 1000 * Math.min(1, problem.part) }))];
}

function against(problem) {
  const lines = problem.baselines.map((peer) => verdict(problem, peer.name, peer));
  if (problem.default_us > 0)
    lines.push(verdict(problem, "the family’s default config", { median_us: problem.default_us }));
  if (lines.length === 0)
    return h("p", {}, "No baseline is stored for this problem: ",
      h("code", {}, "fa-tune import FILE"), " takes some in.");
  return h("ul", {}, lines.map(({ mood, text }) => h("li", { class: mood }, text)));
}

function answers(problem, report) {
  if (!problem.winner)
    return h("p", { class: "warn" }, "No config passed: the funnel says where each ended and why. ",
      h("code", {}, "fa-tune doctor"), " looks for causes outside the kernels.");
  const slowest = problem.baselines[0];
  return [h("dl", { class: "answers" },
    h("dt", {}, "Which kernel"), h("dd", {}, whichKernel(problem)),
    h("dt", {}, "How sure"), h("dd", {}, howSure(problem, report)),
    h("dt", {}, "How far from the ceiling"), h("dd", {}, howFar(problem)),
    h("dt", {}, "Against others"), h("dd", {}, against(problem))),
  problem.known_how === "unfinished" ? small("The tune has not ended: this is the best config so far. The " +
    "same command continues a tune that was stopped.") : null,
  problem.slow && slowest ? h("p", { class: "warn" }, "⚠ Takes " + (problem.us / slowest.median_us).toFixed(1) +
    " times as long as " + slowest.name + ": profile this kernel (",
  h("code", {}, "python -m fa_tune.profile"), ") before spending more time on tuning.") : null];
}

/* ---- circumstances ---- */
/* The first digits of each hash; the pointer gets the whole text. */
function hashes(text) {
  return h("span", { class: "mono", title: text }, text.replace(/\b([0-9a-f]{12})[0-9a-f]{20,}\b/g, "$1…"));
}

/* Files of records have the environment of a few trials of each problem. */
function environment(problem, one) {
  const gpu = one.gpu || "an unnamed GPU";
  const known = problem.environments.reduce((sum, each) => sum + (each.trials || 0), problem.trials_in_other_environments || 0);
  return [known < problem.configs_tried ? gpu + " (recorded for " + grouped(one.trials || 0) + " of " +
    count(problem.configs_tried, "trial") + ")" : count(one.trials || 0, "trial") + " on " + gpu,
    one.uuid ? [" ", h("span", { class: "mono" }, one.uuid)]
      : one.driver > 0 || problem.timed ? "" : ", which was not present",
    one.driver > 0 ? "; driver for " + driver(one.driver) : problem.timed ? "; driver not recorded" : "",
    "; NVRTC ", hashes(String(one.nvrtc || "")),
    one.library ? "; fa-tune " + one.library : "", one.host ? "; host " + one.host : ""];
}

function circumstances(problem) {
  const rows = [
    ["compile time", problem.compile_ms > 0 && seconds(problem.compile_ms / 1000) + " of one core"],
    ["tune time", problem.tune_s > 0 ? seconds(problem.tune_s) + ", the last run"
      : problem.known_how === "unfinished" && "not ended"],
    ["configs tried", problem.configs_tried > 0 ? grouped(problem.configs_tried)
      : problem.known_how === "imported" && "elsewhere: none of them is on record here"],
    ["newest record", problem.undated ? day(problem) : date(problem.unix_time)],
    ...problem.environments.map((one, i) => [i === 0 ? "environment" : "and", environment(problem, one)]),
    ["and", problem.trials_in_other_environments > 0 &&
      count(problem.trials_in_other_environments, "trial") + " in further environments, which the " +
      "JSON report does not name either"],
    ["SM clock", rangeWords(problem.sm_mhz, "MHz")],
    ["memory clock", rangeWords(problem.memory_mhz, "MHz")],
    ["temperature", rangeWords(problem.temperature_c, "°C")],
    ["power limit", rangeWords(problem.power_limit_w, "W")],
    ["driver", problem.drivers.join(", ")],
    ["clocks", problem.funnel.on_device && !problem.sm_mhz && problem.configs_tried > 0 &&
      "not recorded" + (problem.known_how === "imported" ? "" : ": no NVML there")],
    ["throttled by", problem.throttled_by.join("; ")],
    [problem.seeds.length === 1 ? "seed" : "seeds", problem.seeds.join(", ") +
      (problem.other_seeds > 0 ? " and more" : "")],
    ["silicon", problem.silicon],
    ["templates", [hashes(problem.templates),
      problem.templates_are_present ? ", the present ones" : ", not the present ones"]],
  ];
  return h("section", { class: "panel" }, h("h4", {}, "Time and environment"), pairs(rows));
}

/* ---- configs ---- */
function configsTable(problem) {
  if (problem.configs.length === 0) return null;
  const tunables = different(problem.configs.flatMap((config) =>
    Object.keys(config.config.tunables)));
  const number = (head, value, cell) => ({ head, number: true, value,
    cell: cell || ((row) => value(row) >= 0 ? grouped(value(row)) : NONE) });
  const columns = [
    { head: "rank", number: true, row: true, value: (row) => row.rank,
      cell: (row) => [configButton(problem, row, "config", row.rank > 0 ? "#" + row.rank : NONE),
        row.winner ? " winner" : row.default ? " default" : ""] },
    { head: "family", cell: (row) => row.config.family },
    ...tunables.map((name) => number(name, (row) => row.config.tunables[name],
      (row) => name in row.config.tunables ? String(row.config.tunables[name]) : NONE)),
    number("shared B", (row) => row.threads > 0 ? row.smem_bytes + (row.static_smem_bytes || 0) : undefined),
    number("registers", (row) => row.registers),
    number("blocks/SM", (row) => row.blocks_per_sm),
    number("compile ms", (row) => row.compile_ms),
    number("model says", (row) => row.predicted_us,
      (row) => row.predicted_us > 0 ? guess(about(row.predicted_us)) : NONE),
    number("measured", (row) => row.median_us, (row) => row.median_us > 0 ? time(row) : NONE),
    { head: "ended", className: "wide", cell: (row) => row.status + (row.raced ? ", raced" : "") +
      (row.reason ? ": " + row.reason : "") },
  ];
  const all = problem.configs.length, left = problem.configs_left_out;
  const details = h("details", {}, h("summary", {}, count(all, "config") + " in full" +
    (left > 0 ? " of " + grouped(problem.configs_tried) + " that were tried" : "")));
  details.addEventListener("toggle", () => details.append(
    small(left > 0 ? [grouped(left) + " more are counted in the funnel only; ",
      h("code", {}, "fa-tune explain"), " lists every one. "] : "",
    "The model’s times are guesses, marked ~. The first column opens a config’s full record."),
    sortable({ label: "Configs", caption: "Configs, best first", rows: problem.configs, columns,
      keys: true })), { once: true });
  return details;
}

/* close: called when the card is to be closed. */
function card(problem, report, close) {
  const id = "p" + problem.number;
  const article = h("article", { id, "aria-labelledby": id + "h" },
    h("header", {}, h("h3", { id: id + "h", tabindex: -1 }, unbroken(problem.words)), badge(problem),
      problem.slow ? slowBadge() : null, soft(gpuWords(problem.gpu)),
      close ? h("button", { type: "button", class: "quiet screen", click: close,
        "aria-label": "Close " + problem.words }, "Close") : null),
    answers(problem, report),
    h("div", { class: "panels" }, race(problem), rooflineOf(problem),
      others(problem), heat(problem),
      funnel(problem, report.meanings), circumstances(problem)),
    configsTable(problem));
  enterGroups(article);
  return article;
}

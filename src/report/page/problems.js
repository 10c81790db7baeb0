/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from the document: each problem with its limit, its peers and its place among others.
 * Nothing here draws.
 */
/* What others' kernels are called: by the name that people know, else as it is stored. */
const PEER_NAMES = { "pytorch-cudnn": "cuDNN", "pytorch-fa2": "PyTorch’s FA2",
  "pytorch-efficient": "PyTorch’s efficient attention" };
const SLOW = 0.5; /* below this part of a peer's speed a problem is flagged */

/* A field as an operation's "sizes" have it; a specification's has no option, which is its name. */
function fieldOf([name, size]) {
  const own = typeof size === "object" ? size : { default: size };
  return { name, kind: own.choices ? "choice" : typeof own.default === "boolean" ? "boolean" : "integer",
    ...(own.words === undefined && own.macro === undefined ? { label: name, option: "--" + name } : {}), ...own };
}

/* The problem with all its members: a short document leaves out what is empty. */
function complete(given, number, document) {
  const problem = {
    number, problem: {}, words: "", baselines: [], outcomes: [], configs: [], space: [],
    configs_left_out: 0, configs_tried: 0, ...given,
  };
  if (problem.same_bits) problem.words += " · same bits as " + problem.same_bits;
  const operations = document.operations || [];
  problem.gpu = problem.gpu || { name: "" };
  problem.environments = problem.environments || [];
  problem.operation = operations.find((one) => one.name === problem.problem.operation) ||
    operations.find((one) => one.default) || operations[0] || { name: "", fields: [] };
  problem.operation.fields ??= Object.entries(problem.operation.sizes || {}).map(fieldOf);
  readSpace(problem, document);
  addTimes(problem);
  Object.assign(problem, { gates: gatesOf(problem, document), funnel: funnelOf(problem), ...circumstancesOf(problem) });
  problem.intensity = problem.flops > 0 && problem.least_bytes > 0
    ? problem.flops / problem.least_bytes : 0;
  return problem;
}

/* Each row of the space, best first: its config, where that ended, its time where it finished, and its record where that
 * is told in full. */
function readSpace(problem, document) {
  const records = new Map(problem.configs.map((one) => [configWords(one.config), one]));
  problem.space = problem.space.map(([place, gate, us, raced]) => {
    const config = document.space_configs[place];
    return { config, words: configWords(config), status: document.gates[gate].status, us: us || 0, raced: raced === 1 };
  });
  for (const row of problem.space) row.record = records.get(row.words);
}

/* Its best kernel: the winner, else the best so far; and what others take. */
function addTimes(problem) {
  const [first] = problem.configs;
  const best = problem.winner || (first && first.rank > 0 ? first : null);
  problem.chosen = Boolean(problem.winner);
  problem.winner = best;
  problem.timed = Boolean(best && best.median_us > 0);
  problem.measured = problem.timed && (!problem.chosen || problem.known_how.startsWith("measured"));
  problem.us = best ? best.median_us || best.predicted_us || 0 : 0;
  problem.tflops = problem.us > 0 && problem.flops > 0 ? problem.flops / problem.us * 1e-6 : 0;
  problem.default_us = problem.chosen && problem.timed && problem.default_us || 0;
  problem.speedup_over_default = problem.default_us > 0 ? problem.default_us / problem.us : undefined;
  problem.baselines = problem.baselines.map((peer) => ({ ...peer, name: PEER_NAMES[peer.peer] || prose(peer.peer) }))
    .sort((a, b) => a.median_us - b.median_us);
  problem.slow = problem.measured && problem.baselines.some((peer) => peer.median_us < SLOW * problem.us);
  problem.times = problem.space.filter((row) => row.status === "measured" && row.us > 0);
}

/* Where configs ended, in the order of gates: how many, and the most frequent reasons. What an imported winner's space
 * lacks was tried in the store that it came from. */
function gatesOf(problem, document) {
  return document.gates.map(({ status }) => {
    const outcomes = problem.outcomes.filter((one) => one.status === status);
    const sum = (some) => some.reduce((total, one) => total + one.count, 0);
    return { status, count: status === "pending" && isForeign(problem) ? 0 : sum(outcomes),
      reasons: outcomes.filter((one) => one.reason && one.reason !== "…").sort((a, b) => b.count - a.count),
      other_reasons: sum(outcomes.filter((one) => one.reason === "…")) };
  }).filter((gate) => gate.count > 0);
}

/* Whether more of its configs were compiled elsewhere than are on record here. */
function isForeign({ known_how: how, evidence, configs_tried: tried }) {
  return how === "imported" && Boolean(evidence) && evidence.space > 0 && tried < (evidence.compiled || 0);
}

/* How many configs came how far. A study of other templates knows its tried configs only: the space is then what the
 * winner's evidence says. Of an imported winner the evidence is all that is known. */
function funnelOf(problem) {
  const at = new Map(), evidence = { compiled: 0, clean: 0, proved: 0, measured: 0, in_budget: 0, ...problem.evidence };
  for (const one of problem.outcomes) at.set(one.status, (at.get(one.status) || 0) + one.count);
  const ended = (...gates) => gates.reduce((sum, gate) => sum + (at.get(gate) || 0), 0);
  const counted = [...at.values()].reduce((sum, one) => sum + one, 0);
  const there = ended("load-failed", "launch-failed", "wrong", "other-bits", "crashed", "timeout", "out-of-memory");
  let space = counted;
  let in_budget = counted - ended("constraint", "budget", "registers", "does-not-pay");
  const compiled = in_budget - ended("pending", "compile-failed", "compile-timeout");
  const clean = compiled - ended("spills", "cubin"), measured = ended("measured");
  const whole = counted > problem.configs_tried || problem.templates_are_present;
  if (evidence.space > 0 && (isForeign(problem) || !whole)) ({ space, in_budget } = evidence);
  else if (!whole) space = undefined;
  if (evidence.strategy && space < evidence.space) space = evidence.space; /* it was searched */
  return isForeign(problem) ? { ...evidence, space, on_device: evidence.proved > 0 || evidence.measured > 0 }
    : { space, in_budget, compiled, clean, proved: measured, measured, on_device: measured + there > 0 };
}

/* The lowest and the highest clock and the like, and what else was said beside the samples. */
function circumstancesOf({ configs }) {
  const clocks = configs.map((one) => one.clocks || {}), texts = (key) =>
    different(clocks.map((one) => one[key]).filter((text) => typeof text === "string" && text)).slice(0, 4);
  const range = (key) => {
    const values = clocks.map((one) => one[key]).filter((value) => Number.isFinite(value) && value >= 0);
    return values.length > 0 ? [Math.min(...values), Math.max(...values)] : null;
  };
  const seeds = different(configs.map((one) => one.seed).filter(Boolean));
  return { sm_mhz: range("sm_mhz"), memory_mhz: range("memory_mhz"), temperature_c: range("temperature_c"),
    power_limit_w: range("power_limit_w"), drivers: texts("driver"), throttled_by: texts("throttle"),
    seeds: seeds.slice(0, 4), other_seeds: Math.max(0, seeds.length - 4) };
}

/* The roofline at this problem's intensity. What reads fp32 has memory's ceiling alone: the tensor cores' is that of
 * 16-bit types. */
function limitOf(problem) {
  const gpu = problem.gpu, peak = problem.reads_fp32 ? Infinity : gpu.tensor_tflops;
  if (!(peak > 0 && gpu.bandwidth_gbs > 0 && problem.intensity > 0)) return null;
  const memory = gpu.bandwidth_gbs / 1000 * problem.intensity;
  return memory < peak ? { tflops: memory, by: "memory" } : { tflops: peak, by: "tensor cores" };
}

/* With what a matrix product of this type reached in the run of the baselines: beside a card's power limit no ceiling. */
function placeUnderLimit(problem) {
  problem.product = Math.max(0, ...problem.baselines.map((peer) => peer.matmul_tflops || 0));
  problem.limit = limitOf(problem);
  problem.part = problem.limit && problem.tflops > 0 ? problem.tflops / problem.limit.tflops : 0;
}

/* How its time is known, where its standing is another word. */
function knownHow(problem) {
  return problem.known_how === "unfinished" || problem.known_how === "failed"
    ? problem.timed ? "measured" : "predicted" : problem.known_how;
}

/* The fields of these problems' operations, but for features that none of them asks for. */
function fieldsOf(problems) {
  const fields = new Map();
  for (const problem of problems)
    for (const field of problem.operation.fields)
      if (!fields.has(field.name)) fields.set(field.name, field);
  return [...fields.values()].filter((field) => !field.feature ||
    problems.some((problem) => ![undefined, presetOf(field)].includes(valueOf(problem, field))));
}

function valueOf(problem, field) {
  const value = problem.problem[field.name];
  const has = value !== undefined || problem.operation.fields.some((own) => own.name === field.name);
  return value === undefined && has ? presetOf(field) : value; /* undefined: another operation's */
}

/* The value of what is not given. */
function presetOf(field) {
  return field.kind === "boolean" ? false
    : field.kind === "choice" ? field.choices[field.default || 0] : field.default;
}

function different(values) {
  return [...new Set(values)];
}

/* Values of a field or the like in an order that people expect. */
function inOrder(values) {
  return values.sort((a, b) => typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true }));
}

/* A problem's length, over which curves are drawn, and what of its lengths is the curve's. */
function lengthOf(problem) {
  const fields = problem.operation.fields.filter((field) => field.length && !field.feature);
  const values = fields.map((field) => valueOf(problem, field));
  if (values.length === 0) return null;
  if (values.every((value) => value === values[0]))
    return { x: values[0], label: fields[0].label || fields[0].name, axis: nameOf(fields[0]),
      rest: "" };
  const last = fields.length - 1;
  return { x: values[last], label: fields[last].label || fields[last].name,
    axis: nameOf(fields[last]), rest: fields.slice(0, last).map((field, i) => lengthWords(field, values[i])).join(", ") };
}

/* Whether a field tells problems of this one's operation anything: not where all of them leave it out. */
function tells(problems, problem, field) {
  const own = problem.operation.fields.find((one) => one.name === field.name);
  const followed = own && problem.operation.fields.find((one) => one.name === own.follows);
  return own !== undefined && (!own.feature && !own.optional && !followed || problems.some((one) =>
    one.operation === problem.operation &&
    valueOf(one, own) !== (followed ? valueOf(one, followed) : presetOf(own))));
}

/* Problems in groups that differ in their length alone, but for what changes along with it, as the batch
 * of a sweep with so many tokens does. */
function families(problems) {
  const fields = fieldsOf(problems).filter((field) => !field.length || field.feature);
  const keyOf = (problem, kept) => [problem.silicon, problem.operation.name].concat(
    kept.map((field) => valueOf(problem, field))).join("\n");
  const placed = problems.map((problem) => [problem, lengthOf(problem)]).filter((pair) => pair[1]);
  const unique = (kept) => new Set(placed.map(([problem, length]) =>
    keyOf(problem, kept) + "\n" + length.rest + "\n" + length.x)).size === placed.length;
  let kept = fields;
  for (const field of fields.filter((one) => !one.shapes_source))
    if (unique(kept.filter((one) => one !== field))) kept = kept.filter((one) => one !== field);
  const varying = kept.filter((field) => field.shapes_source && field.kind !== "boolean" ||
    different(placed.map(([problem]) => valueOf(problem, field))).length > 1);
  const several = different(problems.map((problem) => problem.operation.name)).length > 1;
  const groups = new Map();
  for (const [problem, length] of placed) {
    const key = keyOf(problem, kept) + "\n" + length.rest;
    if (!groups.has(key))
      groups.set(key, { title: (several ? [problem.operation.title] : [])
        .concat(varying.filter((field) => tells(problems, problem, field))
          .map((field) => fieldWords(field, valueOf(problem, field))), length.rest || [])
        .join(", "), label: length.label, axis: length.axis, problems: [] });
    groups.get(key).problems.push([length.x, problem]);
  }
  for (const group of groups.values()) group.problems.sort((a, b) => a[0] - b[0]);
  return [...groups.values()];
}

/* By which factors measured times differ from what the model says, where both are known: of this GPU,
 * else of all. The middle 90%. */
function modelError(problems, silicon) {
  for (const same of [true, false]) {
    const factors = [];
    for (const problem of problems) {
      if (same && problem.silicon !== silicon) continue;
      const trials = problem.configs.length > 0 ? problem.configs : [problem.winner || {}];
      for (const trial of trials)
        if (trial.median_us > 0 && trial.predicted_us > 0)
          factors.push(trial.median_us / trial.predicted_us);
    }
    if (factors.length < 10) continue;
    factors.sort((a, b) => a - b);
    const at = (part) => factors[Math.round(part * (factors.length - 1))];
    return { low: at(0.05), high: at(0.95), count: factors.length, same };
  }
  return null;
}

function quoted(text) {
  return /^[\w.,:\/+-]+$/.test(text) ? text : "'" + text.replace(/'/g, "'\\''") + "'";
}

/* What the command line takes, as short as it may be. */
function commandOf(problem) {
  const words = ["fa-tune", "--gpu", quoted(problem.gpu.name)];
  const fields = problem.operation.fields;
  if (!problem.operation.default) words.push("--operation", quoted(problem.operation.name));
  const lengths = fields.filter((field) => field.length && !field.feature);
  const one = lengths.length > 1 && lengths[0].also && lengths.every((field) =>
    valueOf(problem, field) === valueOf(problem, lengths[0]));
  for (const field of fields) {
    const value = valueOf(problem, field);
    const followed = fields.find((other) => other.name === field.follows);
    const length = lengths.includes(field);
    const preset = followed && !length ? valueOf(problem, followed)
      : presetOf(field);
    if (value === preset || value === false || (one && length && field !== lengths[0]))
      continue;
    words.push(one && length ? field.also : field.option);
    if (field.kind !== "boolean") words.push(quoted(String(value)));
  }
  return words.join(" ");
}

/* The problem as the Python package takes it, by the words of the command line: seq, heads. */
function pythonOf(problem) {
  const fields = problem.operation.fields, keyword = (option) => option.slice(2).replace(/-/g, "_");
  const given = fields.map((field) => {
    const value = valueOf(problem, field);
    const followed = fields.find((other) => other.name === field.follows);
    const preset = followed ? valueOf(problem, followed) : presetOf(field);
    const one = field.also && fields.every((other) => other.also !== field.also ||
      valueOf(problem, other) === value);
    if (value === false || (one && followed) || (value === preset && !field.also)) return null;
    return (one ? keyword(field.also) : field.option ? keyword(field.option) : field.name) + "=" +
      (value === true || value === bareOf(field) ? "True" : JSON.stringify(value));
  });
  return "kernel = fa_tune.kernel(" + given.filter(Boolean).join(", ") + ")";
}

/* The problem in C, of the default operation. */
function callsOf(problem) {
  const calls = problem.operation.fields.map((field) => {
    const value = valueOf(problem, field);
    return value === presetOf(field) ? null : 'fa_set_field(&problem, "' + field.name + '", "' + value + '", NULL);';
  });
  return "fa_make_problem(NULL, &problem); " + calls.filter(Boolean).join(" ");
}

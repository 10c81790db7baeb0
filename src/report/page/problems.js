/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from the document: each problem with its limit, its peers and its place among others.
 * Nothing here draws.
 */
const REPEATED = ["gpu", "silicon", "templates", "policy", "environments"];

/* The problem with all its members: a short document leaves out what is empty, and what the problem
 * before it has too. */
function complete(given, last, number, operations) {
  const problem = {
    number, problem: {}, words: "", baselines: [], gates: [], configs: [], heat: [], near: [],
    funnel: {}, throttled_by: [], drivers: [], seeds: [], configs_left_out: 0, ...given,
  };
  for (const name of REPEATED)
    if (given[name] === undefined && last) problem[name] = last[name];
  problem.gpu = problem.gpu || { name: "" };
  problem.environments = problem.environments || [];
  problem.operation = operations.find((one) => one.name === problem.problem.operation) ||
    operations.find((one) => one.default) || operations[0] || { name: "", fields: [] };
  const winner = problem.winner;
  problem.timed = Boolean(winner && winner.median_us > 0);
  problem.us = winner ? winner.median_us || winner.predicted_us || 0 : 0;
  for (const peer of problem.baselines) peer.name = prose(peer.name || peer.peer);
  problem.baselines.sort((a, b) => a.median_us - b.median_us);
  problem.intensity = problem.flops > 0 && problem.least_bytes > 0
    ? problem.flops / problem.least_bytes : 0;
  return problem;
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

/* How few configs leave every problem within 2% of its best: at each step the config that serves most
 * of the problems that are left. */
function cover(problems) {
  let left = problems.filter((problem) => problem.near.length > 0);
  const total = left.length, steps = [];
  while (left.length > 0) {
    const served = new Map();
    for (const problem of left)
      for (const config of problem.near) served.set(config, (served.get(config) || 0) + 1);
    const [config, problemCount] = [...served].reduce((a, b) => b[1] > a[1] ? b : a);
    left = left.filter((problem) => !problem.near.includes(config));
    steps.push({ config, problems: problemCount, covered: total - left.length });
  }
  return { total, steps };
}

function geometricMean(values) {
  return Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
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
      (value === true || value === field.bare ? "True" : JSON.stringify(value));
  });
  return "kernel = fa_tune.kernel(" + given.filter(Boolean).join(", ") + ")";
}

/* The problem as a C initializer. */
function initializerOf(problem) {
  const members = problem.operation.fields.map((field) => {
    const value = valueOf(problem, field);
    if (value === false || value === (field.choices || [])[0] ||
      (field.feature && value === presetOf(field))) return null;
    const text = field.kind === "boolean" ? "true"
      : field.kind === "choice" ? (field.c_prefix || "") + value.toUpperCase().replace(/-/g, "_") : value;
    return "." + (field.member || field.name) + " = " + text;
  });
  return "fa_problem problem = {" + members.filter(Boolean).join(", ") + "};";
}

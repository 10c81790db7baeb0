/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows over all problems: how much faster the measured kernels are than others' and under which circumstances they
 * were measured, whether tuning pays, how few configs would do, and what layers take in training. Nothing here draws.
 */
function geometricMean(values) {
  return Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
}

/* [key, problems] of each key, in the order of the problems. */
function groupsOf(problems, keyOf) {
  const groups = new Map();
  for (const problem of problems) {
    const key = keyOf(problem);
    groups.set(key, [...(groups.get(key) || []), problem]);
  }
  return [...groups];
}

const kindOf = (problem) => problem.silicon + "\n" + problem.operation.name;

/* ---- the headline ---- */
/* Another kernel's times over the winners', where both are known. */
function comparison(name, ratios) {
  return { name, problems: ratios.length, mean: geometricMean(ratios), worst: Math.min(...ratios) };
}

/* The most able peer first. Only problems that were timed on a GPU are compared. */
function comparisons(problems) {
  const timed = problems.filter((problem) => problem.timed);
  return peersOf(timed).map(({ peer: id, name }) => comparison(name, timed.flatMap((problem) =>
    problem.baselines.filter((one) => one.peer === id).map((one) => one.median_us / problem.us)))).sort((a, b) => a.mean - b.mean);
}

/* "an H200", "a T4", "an NVIDIA L4": letters that are said one by one begin as their names do. */
function someGpu(name) {
  const spelt = !/[a-z]/.test(name[1] || "");
  return ((spelt ? /^[AEFHILMNORSX8]/ : /^[AEIOUaeiou8]/).test(name) ? "an " : "a ") + (name || "unnamed GPU");
}

/* "1.11× as fast as FlashAttention-3 (geometric mean of 36 problems, worst 1.02) and 1.20× as cuDNN (worst 1.11)" */
function againstWords(peers) {
  return peers.map((peer, i) => {
    const same = i > 0 && peer.problems === peers[i - 1].problems, several = peer.problems > 1;
    const notes = [same ? "" : (several ? "geometric mean of " : "") + count(peer.problems, "problem"),
      several ? "worst " + peer.worst.toFixed(2) : ""].filter(Boolean).join(", ");
    return (i === 0 ? "" : i + 1 < peers.length ? ", " : " and ") + ratio(peer.mean) + " as " + (i === 0 ? "fast as " : "") +
      peer.name + (notes ? " (" + notes + ")" : "");
  }).join("");
}

/* Of the problems of one GPU type and operation. named: its operation is named. */
function sentenceOf(problems, peers, named) {
  const [{ gpu, operation }] = problems, timed = problems.filter((problem) => problem.timed);
  const of = named ? " of " + operation.title : "", some = (list) => ", " + count(list.length, "problem") + of;
  const defaults = timed.map((problem) => problem.speedup_over_default).filter((value) => value > 0);
  const start = "On " + someGpu(gpu.name);
  if (timed.length === 0)
    return start + some(problems) + (problems.every((problem) => problem.known_how === "failed")
      ? " without a kernel: no config passed." : problems.length === 1 ? " is not measured yet." : " are not measured yet.");
  if (peers.length > 0) return start + ", fa-tune’s kernels" + of + " are " + againstWords(peers) + ".";
  if (defaults.length > 0)
    return start + ", fa-tune’s kernels" + of + " are " + againstWords([comparison("their families’ defaults", defaults)]) +
      "; no other kernel’s time is stored.";
  return start + some(timed) + (timed.length === 1 ? " is" : " are") + " measured, and no other kernel’s time is stored.";
}

/* "H200 · driver 580.159.04 (for CUDA 13.0) · CUDA 13.0 (NVRTC) · SM clock 1,410 to 1,980 MHz · …", of one GPU type. */
function circumstancesLine(problems) {
  const timed = problems.filter((problem) => problem.timed), [{ gpu }] = problems;
  if (timed.length === 0)
    return gpu.name + " · nothing was measured" + (problems.every((problem) => problem.known_how === "failed") ? ""
      : ": times are the model’s");
  const environments = timed.flatMap((problem) => problem.environments);
  const cuda = Math.max(0, ...environments.map((one) => one.driver).filter((version) => version > 0));
  const drivers = different(timed.flatMap((problem) => problem.drivers)).slice(0, 4).join(", ");
  const nvrtc = environments.map((one) => String(one.nvrtc || "").split(" ")[0]).find(Boolean);
  const range = (what, key, unit) => {
    const values = timed.flatMap((problem) => problem[key] || []).filter((value) => value > 0);
    return values.length === 0 ? what + " not recorded" : what + " " + rangeWords([Math.min(...values), Math.max(...values)], unit);
  };
  const imported = timed.filter((problem) => problem.known_how === "imported").length;
  const days = timed.map((problem) => problem.unix_time).sort((a, b) => a - b).map((time) => date(time).slice(0, 10));
  const last = days[days.length - 1];
  return [gpu.name, "driver " + (cuda > 0 ? drivers ? drivers + " (for " + driver(cuda) + ")" : "for " + driver(cuda)
    : drivers || "not recorded"), "CUDA " + (nvrtc ? nvrtc + " (NVRTC)" : "not recorded"),
  range("SM clock", "sm_mhz", "MHz"), timed.some((problem) => problem.memory_mhz) ? range("memory clock", "memory_mhz", "MHz") : "",
  range("power limit", "power_limit_w", "W"),
  "measured " + (imported === 0 ? "" : imported === timed.length ? "elsewhere and imported, " : "partly elsewhere, ") +
    (timed.some((problem) => problem.undated) ? "by " : days[0] < last ? days[0] + " to " : "") + last].filter(Boolean).join(" · ");
}

const UNMEASURED_MANY = 4; /* GPU types on which nothing is measured, whose sentences would hide the others */

/* What is said first of each GPU type and operation, GPU types with a measurement first: {sentence, circumstances, compared}. */
function headlinesOf(problems) {
  const kinds = groupsOf(problems, kindOf);
  const types = groupsOf(problems, (problem) => problem.silicon).map(([, some]) => some);
  const isTimed = (some) => some.some((problem) => problem.timed);
  const [measured, others] = [types.filter(isTimed), types.filter((some) => !isTimed(some))];
  const hidden = measured.length > 0 && others.length >= UNMEASURED_MANY;
  const told = [...measured, ...(hidden ? [] : others)].flatMap((type) =>
    kinds.filter(([, some]) => some[0].silicon === type[0].silicon).map(([, some]) => {
      const peers = comparisons(some);
      return { sentence: sentenceOf(some, peers, !some[0].operation.default || kinds.length > 1),
        circumstances: circumstancesLine(type), compared: peers.length > 0 };
    }));
  if (hidden)
    told.push({ sentence: "Nothing is measured on " + others.length + " other GPU types.",
      circumstances: "Their times are the model’s.", compared: false });
  return told;
}

/* ---- whether tuning pays ---- */
const PAY_FIXED = 4;

/* Joins to the chosen configs the one that adds most: by how many problems it serves, then by how little it costs there.
 * A config that was not measured on a problem serves it not. false: none adds anything. */
function chooseNext(choice, samples) {
  let found = null, most = choice.served, least = choice.cost;
  for (const [words, some] of samples) {
    let { served, cost } = choice;
    for (const one of some) {
      const before = choice.best.get(one.problem);
      if (!before) served++;
      cost += !before ? Math.log(one.ratio) : one.ratio < before.ratio ? Math.log(one.ratio / before.ratio) : 0;
    }
    if (served < most || (served === most && !(cost < least - 1e-9))) continue;
    [found, most, least] = [words, served, cost];
  }
  if (found === null) return false;
  for (const one of samples.get(found)) {
    const before = choice.best.get(one.problem);
    if (!before || one.ratio < before.ratio) choice.best.set(one.problem, one);
  }
  Object.assign(choice, { served: most, cost: least });
  choice.configs.push(found);
  return true;
}

function payRow(against, { best, configs }) {
  const ratios = [...best.values()].map((one) => one.ratio);
  return { against, configs: [...configs], problems: ratios.length, gain: geometricMean(ratios), most: Math.max(...ratios),
    probes: [...best.values()].filter((one) => !one.raced).length };
}

/* The winners of one GPU type and operation against the default config, one config for all, and the best few. */
function payRowsOf(problems) {
  const defaults = problems.filter((problem) => problem.speedup_over_default > 0).map((problem) =>
    [problem, { ratio: problem.speedup_over_default, raced: true }]);
  const rows = defaults.length > 0 ? [payRow("the family’s default config", { best: new Map(defaults), configs: [] })] : [];
  const samples = new Map(), choice = { best: new Map(), served: 0, cost: 0, configs: [] };
  for (const problem of problems)
    for (const { words, us, raced } of problem.times) {
      if (!samples.has(words)) samples.set(words, []);
      samples.get(words).push({ problem, ratio: us / problem.us, raced });
    }
  const sorted = new Map([...samples].sort(([a], [b]) => a < b ? -1 : a > b ? 1 : 0));
  while (problems.length > 1 && choice.configs.length < PAY_FIXED && chooseNext(choice, sorted))
    if (choice.configs.length === 1) rows.push(payRow("one config for all of them", choice));
  if (choice.configs.length > 1)
    rows.push(payRow("the best of " + choice.configs.length + " fixed configs", choice));
  return rows;
}

function payOf(problems) {
  return groupsOf(problems.filter((problem) => problem.chosen && problem.timed), kindOf).flatMap(([, some]) =>
    payRowsOf(some).map((row) => ({ ...row, gpu: some[0].gpu.name, operation: some[0].operation, of: some.length })));
}

/* ---- how few configs would do ---- */
const AS_FAST = 1.02; /* times the best: as good */

/* How few configs leave every problem within 2% of its best: at each step the config that serves most of the problems
 * that are left. */
function cover(problems) {
  let left = problems.filter((problem) => problem.timed).map((problem) => {
    const near = problem.times.filter((one) => one.us <= problem.us * AS_FAST).map((one) => one.words);
    return near.length > 0 ? near : [configWords(problem.winner.config)]; /* imported: no trial may be on record */
  });
  const total = left.length, steps = [];
  while (left.length > 0) {
    const served = new Map();
    for (const near of left)
      for (const words of near) served.set(words, (served.get(words) || 0) + 1);
    const [config, problemCount] = [...served].reduce((a, b) => b[1] > a[1] ? b : a);
    left = left.filter((near) => !near.includes(config));
    steps.push({ config, problems: problemCount, covered: total - left.length });
  }
  return { total, steps };
}

/* ---- training ---- */
/* Each forward pass beside its backward pass on the same GPU type. */
function trainingOf(problems) {
  return problems.filter((problem) => problem.us > 0 && problem.backward > 0)
    .map((forward) => ({ forward, backward: problems[forward.backward - 1] }))
    .filter(({ backward }) => backward && backward.us > 0).map(({ forward, backward }) => {
      const alike = forward.timed === backward.timed;
      return { forward, backward, measured: alike && forward.timed, ratio: alike ? backward.us / forward.us : undefined,
        together_us: alike ? forward.us + backward.us : undefined };
    });
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * How the page words numbers, times and verdicts. Times that were measured and times that a model says
 * never look alike: the model's have a tilde and the class "guess" (italic, a broken line).
 */
const NONE = "–";

function grouped(value) {
  return Math.round(value).toLocaleString("en-US");
}

function count(number, noun) {
  return grouped(number) + " " + noun + (number === 1 ? "" : "s");
}

function microseconds(us) {
  const digits = us < 9.995 ? us.toFixed(2) : us < 999.95 ? us.toFixed(1) : grouped(us);
  return digits + " µs";
}

function about(us) {
  return "~" + (us < 99.95 ? us.toFixed(1) : grouped(us)) + " µs";
}

/* Nothing of a single launch. */
function plusMinus(trial) {
  return trial.low_us === trial.high_us ? "" : "±" + ((trial.high_us - trial.low_us) / 2).toFixed(trial.median_us < 9.995 ? 2 : 1);
}

function seconds(value) {
  if (!(value > 0)) return NONE;
  if (value >= 7200) return (value / 3600).toFixed(1) + " h";
  if (value >= 120) return Math.floor(value / 60) + " min " + Math.floor(value % 60) + " s";
  return value.toFixed(value < 0.0995 ? 3 : 1) + " s";
}

function tflops(value) {
  return value < 0.0995 ? String(Number(value.toPrecision(1))) : value < 0.995 ? value.toFixed(2) : value < 9.95 ? value.toFixed(1) : grouped(value);
}

function percent(part) {
  return (100 * part).toFixed(part < 0.0095 ? 1 : 0) + "%";
}

function ratio(value) {
  return value.toFixed(2) + "×";
}

/* "1,410 to 1,980 MHz", of [lowest, highest]. */
function rangeWords(values, unit) {
  return values && grouped(values[0]) + (values[1] > values[0] ? " to " + grouped(values[1]) : "") + " " + unit;
}

/* The class of a ratio: "ahead" or "behind" where two digits show a difference, else none. */
function mood(value) {
  return ratio(value) === ratio(1) ? null : value > 1 ? "ahead" : "behind";
}

/* How a time is known. What another store measured is measured, too. */
const KNOWN_HOW = { imported: "measured, imported", "measured-same-silicon": "measured on another board" };

function howWords(how) {
  return KNOWN_HOW[how] || how;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 999.5 && unit + 1 < units.length; unit++) value /= 1000;
  return value.toFixed(unit > 0 && value < 99.5 ? 1 : 0) + " " + units[unit];
}

function date(unixTime) {
  const iso = new Date(unixTime * 1000).toISOString();
  return iso.slice(0, 10) + " " + iso.slice(11, 16) + " UTC";
}

/* When a winner was measured: "by 2026-11-26" where only the day of a file of records is known. */
function day(problem) {
  return (problem.undated ? "by " : "") + date(problem.unix_time).slice(0, 10);
}

function driver(version) {
  return "CUDA " + Math.floor(version / 1000) + "." + Math.floor(version % 1000 / 10);
}

/* A line breaks behind a "·" of a problem's words, and not within "S 512" or "FlashAttention-3". */
function unbroken(text) {
  return text.replace(/(?<!·) /g, "\u00a0");
}

function unhyphened(text) {
  return text.replace(/(\w)-(?=\w)/g, "$1\u2011");
}

/* The library's sentences as the page writes: ’, and no space before ×. */
function prose(text) {
  return text.replace(/'/g, "’").replace(/(?<=\d) ×/g, "×");
}

function guess(text) {
  return h("span", { class: "guess" }, text);
}

/* A text that is the model's unless the problem was timed. */
function told(problem, text) {
  return problem.timed ? text : guess("~" + text);
}

/* With its ± or as a guess. */
function time(trial) {
  if (trial.median_us > 0)
    return [microseconds(trial.median_us), " ", soft(plusMinus(trial))];
  return trial.predicted_us > 0 ? guess(about(trial.predicted_us)) : NONE;
}

function configWords(config) {
  return [config.family].concat(
    Object.entries(config.tunables).map(([name, value]) => name + "=" + value)).join(" ");
}

function gpuWords(gpu) {
  return gpu.name + (gpu.sm > 0 ? " (sm_" + gpu.sm + ", " + gpu.sm_count + " SMs)" : "");
}

/* "head dim 64", "causal", "not causal", "fp16", "page 64": one field's value. */
function fieldWords(field, value) {
  const name = nameOf(field);
  if (field.kind === "boolean") return (value ? "" : "not ") + name;
  if (field.kind === "choice" && field.label)
    return value === "none" ? "not " + name : value === bareOf(field) ? name : name + " " + value;
  return field.kind === "choice" ? value : name + " " + value;
}

/* What an option stands for whose value is left out; undefined: it needs one. */
function bareOf(field) {
  return (field.choices || [])[0] === "none" ? field.choices[1] : undefined;
}

/* The same of a length among others that differ from it: "S 1". */
function lengthWords(field, value) {
  return (field.label || nameOf(field)) + " " + value;
}

/* "sequence length", "head dim", "causal": the field itself. */
function nameOf(field) {
  return (field.kind !== "integer" && field.label) || (field.words || field.option || field.name).replace(/^--/, "").replace(/[,;:(].*/, "").replace(/[-_]/g, " ");
}

/* Whether two medians' intervals overlap. */
function level(a, b) {
  return a.low_us > 0 && b.low_us > 0 && a.low_us <= b.high_us && b.low_us <= a.high_us;
}

/* "1.19× as fast as cuDNN" */
function verdict(problem, name, other) {
  const times = other.median_us / problem.us;
  if (problem.timed && level(problem.winner, other))
    return { mood: "", text: "level with " + name + ": the intervals overlap" };
  if (problem.timed && !mood(times))
    return { mood: "", text: "as fast as " + name };
  const faster = times >= 1;
  const text = faster ? ratio(times) + " as fast as " + name
    : name + " is " + ratio(1 / times) + " as fast here";
  return problem.timed ? { mood: faster ? "ahead" : "behind", text }
    : { mood: "guess", text: "~" + text + ", if the model is right" };
}

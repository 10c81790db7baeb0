/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of a service: what is under way there, above the report of its store, both as the service tells
 * them. It reads and changes nothing. The service's token stands in the address's fragment, which browsers send to no
 * server, and goes with each request in a header.
 */
const JOBS_MS = 1000, SWEEPS_MS = 10000;
const HINT = ["The address that ", h("code", {}, "fa-tune serve --page"), " prints has it."];

const now = { devices: [], jobs: null, sweeps: [], drawn: "", known: "", touched: false, asking: false };

async function read(path) {
  const answer = await fetch(path, { credentials: "omit", cache: "no-store", redirect: "error",
    headers: { Authorization: "Bearer " + location.hash.slice(1) } });
  if (answer.status === 401) throw new Error("token");
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  return answer.text();
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/* ---- what is under way ---- */
function table(caption, heads) {
  const rows = h("tbody");
  const box = h("div", { class: "scroll stacked", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), rows));
  box.show = (lines) => {
    box.hidden = lines.length === 0;
    rows.replaceChildren(...lines.map(([first, ...rest]) => h("tr", {},
      h("th", { scope: "row" }, first), rest.map((cell, i) => h("td", { "data-head": heads[i + 1] }, cell)))));
  };
  box.show([]);
  return box;
}

const parts = {
  said: h("p", { role: "status" }), devices: table("GPUs", ["GPU", "what it does"]),
  jobs: table("Tunes", ["problem", "GPU", "state", "progress", "best so far", "time"]),
  queue: table("Sweeps", ["sweep", "state", "done", "held by"]),
  fresh: h("p", { hidden: true }, h("button", { type: "button", class: "quiet", click: drawKnown },
    "Draw the report anew"), " The store has changed since it was drawn."),
};
const nowSection = h("section", { id: "now", "aria-labelledby": "now-h" },
  h("h2", { id: "now-h" }, "Now"), parts.said, parts.devices, parts.jobs, parts.queue, parts.fresh);

function progressOf(tune) {
  if (!tune) return NONE;
  if (tune.stage === "final") return "the finalists race";
  if (tune.in_budget === 0) return NONE;
  const words = grouped(tune.compiled) + " compiled" + (tune.measured > 0 ? ", " + grouped(tune.measured) + " measured" : "") +
    " of " + count(tune.in_budget, "config");
  return h("div", {}, h("progress", { value: Math.min(tune.ended, tune.in_budget), max: tune.in_budget, "aria-label": words }), " ",
    h("span", { class: "word" }, words));
}

function jobLine(job) {
  const best = job.progress && job.progress.best;
  return [unhyphened(unbroken(job.what)), unbroken(job.gpu), job.started ? "running" : "waiting", progressOf(job.progress),
    best ? [time(best), " ", h("span", { class: "mono" }, configWords(best.config))] : NONE,
    job.started ? unbroken(seconds(Math.max(0, Date.now() / 1000 - job.started))) : NONE];
}

function deviceLine(gpu) {
  const jobs = now.jobs.filter((job) => job.started && job.ordinal === gpu.ordinal);
  return [gpu.ordinal + ": " + gpuWords(gpu), jobs.length > 0 ? jobs.map((job) => job.what).join("; ") : "idle"];
}

function sweepLine(sweep) {
  return [sweep.plan || sweep.key.slice(0, 10), sweep.state,
    grouped(sweep.done) + " of " + grouped(sweep.items) +
      (sweep.failed > 0 ? ", " + grouped(sweep.failed) + " failed" : ""),
    sweep.held.length > 0 ? different(sweep.held.map((one) => one.holder + " (" + one.stage + "s)")).join(", ") : NONE];
}

function say(...text) {
  parts.said.replaceChildren(...text);
}

function showNow() {
  const busy = now.jobs.filter((job) => job.started).length, waiting = now.jobs.length - busy;
  const words = (busy > 0 ? count(busy, "tune") + " under way" : "Nothing is under way") +
    (waiting > 0 ? ", " + grouped(waiting) + " waiting" : "") + "." +
    (now.devices.length === 0 ? " No GPU is here: answers are predicted." : "");
  if (parts.said.textContent !== words) say(words);
  parts.devices.show(now.devices.map(deviceLine));
  parts.jobs.show(now.jobs.map(jobLine));
  parts.queue.show(now.sweeps.map(sweepLine));
}

/* ---- the report ---- */
/* What the reader has opened, typed or chosen is not swept away: a button draws the report anew then. */
function drawKnown() {
  now.drawn = now.known;
  draw(JSON.parse(now.drawn));
  document.querySelector("#page header").after(nowSection);
  now.touched = false;
  parts.fresh.hidden = true;
}

const withoutTime = (text) => text.replace(/"unix_time":\d+/, "");

async function readReport() {
  if (now.asking) return;
  now.asking = true;
  try {
    now.known = await read("/v1/report");
    if (withoutTime(now.known) === withoutTime(now.drawn)) { /* nothing of it has changed */
    } else if (now.touched && now.drawn) parts.fresh.hidden = false;
    else drawKnown();
  } catch (error) {
    if (!now.drawn) say("The report: " + error.message);
  }
  now.asking = false;
}

/* ---- following ---- */
/* A tune that was there and is not any more has ended: there may be a winner. */
function take({ devices, jobs }) {
  const name = (job) => job.what + " " + job.gpu + " " + job.accepted;
  const ended = (now.jobs || []).filter((job) => !jobs.some((one) => name(one) === name(job)));
  const first = now.jobs === null;
  now.devices = devices;
  now.jobs = jobs;
  showNow();
  if (ended.length > 0) announce(ended.map((job) => job.what + ": ended").join("; "));
  if (first || ended.length > 0) readReport();
}

async function follow() {
  let sweepsAt = 0;
  for (;;) {
    try {
      if (Date.now() - sweepsAt > SWEEPS_MS) {
        sweepsAt = Date.now();
        now.sweeps = JSON.parse(await read("/v1/sweeps")).sweeps;
      }
      take(JSON.parse(await read("/v1/jobs")));
    } catch (error) {
      if (error.message === "token") {
        say("This page needs the service\u2019s token. ", ...HINT);
        return;
      }
      say("The service does not answer. The page tries again.");
    }
    await pause(JOBS_MS);
  }
}

window.addEventListener("hashchange", () => location.reload()); /* another token, typed over this one */
document.getElementById("page").replaceChildren(h("header", {}, h("h1", {}, "fa-tune")), nowSection);
for (const event of ["pointerdown", "keydown", "input"])
  document.addEventListener(event, ({ target }) => {
    if (!(target instanceof Element && target.closest("#now"))) now.touched = true;
  });
follow();

/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of a service: what is under way there, above the report of its store, both as the service tells
 * them. It reads and changes nothing. Its link's secret is handed in once for a session's, which this
 * script alone knows: a page that is loaded again needs another link.
 */
const RETRY_MS = 3000, REPORT_MS = 10000, QUEUE_MS = 10000;
const LINK_HINT = ["Type ", h("code", {}, "fa-tune serve --open"), " for a new link."];

const now = {
  session: "", state: null, devices: null, sweeps: [], ended: new Map(), /* jobs by their ids, with what they came to */
  drawn: "", known: "", version: "", touched: false, asking: false, askedAt: 0, over: false,
};

function request(path, how) {
  return fetch(path, { credentials: "omit", cache: "no-store", redirect: "error",
    headers: { Authorization: "Bearer " + now.session }, ...how });
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
  jobs: table("Jobs", ["job", "GPU", "state", "progress", "best so far", "time"]),
  queue: table("The fleet’s queue", ["sweep", "state", "done", "held by"]),
  fresh: h("p", { hidden: true }, h("button", { type: "button", class: "quiet", click: drawKnown },
    "Draw the report anew"), " The store has changed since it was drawn."),
};
const nowSection = h("section", { id: "now", "aria-labelledby": "now-h" },
  h("h2", { id: "now-h" }, "Now"), parts.said, parts.devices, parts.jobs, parts.queue, parts.fresh);

function tuneOf(job) {
  const progress = job.progress;
  return progress && progress.tune !== undefined ? progress.tune : progress;
}

function progressOf(job, ended) {
  const sweep = (job.progress && job.progress.sweep) || ended.sweep, tune = tuneOf(job);
  const bar = (done, all, words) => h("div", {}, h("progress", { value: done, max: all, "aria-label": words }), " ",
    h("span", { class: "word" }, words));
  const cells = [];
  if (sweep)
    cells.push(bar(sweep.done + sweep.failed, sweep.items, grouped(sweep.done) + " of " +
      count(sweep.items, "problem")));
  if (tune && tune.stage === "final") cells.push("the finalists race");
  else if (tune && tune.in_budget > 0)
    cells.push(bar(Math.min(tune.ended, tune.in_budget), tune.in_budget,
      grouped(tune.compiled) + " compiled" + (tune.measured > 0 ? ", " + grouped(tune.measured) + " measured" : "") +
      " of " + count(tune.in_budget, "config")));
  return cells;
}

function jobLine(job) {
  const ended = now.ended.get(job.id) || {}, tune = tuneOf(job) || tuneOf(ended);
  const best = ended.answer || (tune && tune.best);
  const end = job.ended || Date.now() / 1000;
  const what = job.what || job.id.slice(0, 8);
  return [job.kind === "sweep" ? "sweep " + what : unhyphened(unbroken(what)), job.gpu ? unbroken(job.gpu) : NONE,
    job.state === "failed" ? "failed: " + job.error.message : job.state, progressOf(job, ended),
    best ? [time(best), " ", h("span", { class: "mono" }, configWords(best.config))] : NONE,
    job.started ? unbroken(seconds(Math.max(0, end - job.started))) : NONE];
}

function deviceLine(gpu) {
  const jobs = now.state.jobs.filter((job) => job.state === "running" && job.ordinal === gpu.ordinal);
  return [gpu.ordinal + ": " + gpuWords(gpu),
    jobs.length > 0 ? jobs.map((job, i) => (i > 0 ? "; " : "") + job.kind + " " + (job.what || job.id))
      : "idle"];
}

function sweepLine(sweep) {
  return [sweep.plan || sweep.key.slice(0, 10), sweep.state,
    grouped(sweep.done) + " of " + grouped(sweep.items) +
      (sweep.failed > 0 ? ", " + grouped(sweep.failed) + " failed" : ""),
    sweep.held.length > 0 ? different(sweep.held.map((one) => one.holder + " (" + one.stage + "s" +
      (one.left_s < 0 ? ", not heard of for too long" : "") + ")")).join(", ") : NONE];
}

function say(...text) {
  parts.said.replaceChildren(...text);
}

function showNow() {
  const { state, devices } = now;
  if (!state) return;
  const busy = state.jobs.filter((job) => job.state === "running").length;
  const words = (busy > 0 ? count(busy, "job") + " under way" : "Nothing is under way") +
    (state.queued > 0 ? ", " + grouped(state.queued) + " waiting" : "") +
    (state.ready ? "." : ". The service is not ready.") +
    (devices && devices.length === 0 ? " No GPU is here: answers are predicted." : "");
  if (parts.said.textContent !== words) say(words);
  parts.devices.show((devices || []).map(deviceLine));
  parts.jobs.show(state.jobs.map(jobLine));
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

async function askForReport() {
  if (now.asking || now.over || !now.state || now.state.report === now.version ||
    Date.now() - now.askedAt < REPORT_MS) return;
  now.asking = true;
  now.askedAt = Date.now();
  try {
    const answer = await request("/v1/report");
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    now.version = (answer.headers.get("ETag") || "").replace(/"/g, "");
    now.known = await answer.text();
    if (withoutTime(now.known) === withoutTime(now.drawn)) { /* nothing of it has changed */
    } else if (now.touched && now.drawn) parts.fresh.hidden = false;
    else drawKnown();
  } catch (error) {
    if (!now.drawn) say("The report: " + error.message);
  }
  now.asking = false;
}

async function readList(path) {
  const answer = await request(path).catch(() => null);
  return answer && answer.ok ? answer.json() : null;
}

async function followQueue() {
  while (!now.over) {
    const gpus = now.devices ? null : await readList("/v1/gpus");
    if (gpus) now.devices = gpus.devices;
    const queue = await readList("/v1/queue");
    if (queue) now.sweeps = queue.sweeps;
    showNow();
    await pause(QUEUE_MS);
  }
}

/* ---- the stream ---- */
const isOver = (job) => job.ended !== null;

async function readEnded(job) {
  now.ended.set(job.id, {});
  now.ended.set(job.id, await readList("/v1/jobs/" + job.id) || {});
  showNow();
}

function take(state) {
  const before = now.state ? now.state.jobs.filter(isOver) : [];
  const ended = now.state ? state.jobs.filter((job) => isOver(job) &&
    !before.some((one) => one.id === job.id)) : [];
  now.state = state;
  showNow();
  state.jobs.filter((job) => isOver(job) && !now.ended.has(job.id)).forEach(readEnded);
  if (ended.length > 0) {
    now.askedAt = 0; /* there may be a winner */
    announce(ended.map((job) => (job.what || "a job") + ": " + job.state).join("; "));
  }
  askForReport();
}

/* Its events as they come: blocks of lines that end with an empty one. */
async function readStream(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks)
      if (block.startsWith("event: state\ndata: ")) take(JSON.parse(block.slice(19)));
  }
}

async function follow() {
  while (!now.over) {
    try {
      const answer = await request("/v1/events");
      if (answer.status === 401) {
        now.over = true;
        say("This session has ended. ", ...LINK_HINT);
        return;
      }
      if (answer.ok) await readStream(answer.body);
    } catch { /* it is asked again */
    }
    say("The service does not answer. The page tries again; after a restart of the service it needs a new link: ",
      LINK_HINT[1].cloneNode(true), ".");
    await pause(RETRY_MS);
  }
}

const isLink = () => /^#[0-9a-f]{64}$/.test(location.hash);

async function enter() {
  const link = location.hash.slice(1);
  window.addEventListener("hashchange", () => { /* another link, typed over this one */
    if (isLink()) location.reload();
  });
  const page = document.getElementById("page");
  page.replaceChildren(h("header", {}, h("h1", {}, "fa-tune")), nowSection);
  if (!isLink()) {
    say("This page needs a link. ", ...LINK_HINT);
    return;
  }
  history.replaceState(null, "", location.pathname);
  now.session = link;
  const answer = await request("/v1/session", { method: "POST" }).catch(() => null);
  now.session = answer && answer.ok ? (await answer.json()).session : "";
  if (!now.session) {
    say("This link was used already, or is too old. ", ...LINK_HINT);
    return;
  }
  for (const event of ["pointerdown", "keydown", "input"])
    document.addEventListener(event, ({ target }) => {
      if (!(target instanceof Element && target.closest("#now"))) now.touched = true;
    });
  page.append(small("The report of the store is being made."));
  follow();
  followQueue();
  setInterval(askForReport, 1000);
}

enter();

// SPDX-License-Identifier: Apache-2.0
// The page at /worker: joins, shows what goes on, joins again. Everything from the server goes in as
// text, never as markup.
import { Link } from "./link.js";

const $ = (id) => document.getElementById(id);
const LOG_LINES = 20, PAUSE_MS = 1000, MOST_PAUSE_MS = 30000;
const state = { runs: 0, models: 0, errors: 0, ms: 0, backend: "" };
let link = null, wanted = false, pause = PAUSE_MS, timer = 0;
const token = () => $("token").value.trim();

function show(text, kind = "") {
  $("state").textContent = text;
  $("state").dataset.kind = kind;
}
function note(text) {
  const line = document.createElement("li");
  line.textContent = `${new Date().toLocaleTimeString()} ${text}`;
  $("log").prepend(line);
  while ($("log").childElementCount > LOG_LINES) $("log").lastElementChild.remove();
}
function count() {
  $("runs").textContent = String(state.runs);
  $("models").textContent = String(state.models);
  $("errors").textContent = String(state.errors);
  $("backend").textContent = state.backend || "not known yet";
  $("last").textContent = state.runs ? `${state.ms.toFixed(1)} ms` : "none";
}

function onEvent({ what, ms, backend, error }) {
  if (backend) state.backend = backend;
  if (error) state.errors++, note(`${what}: ${error}`);
  else if (what === "load") state.models++, note(`a model is loaded: ${backend}`);
  else if (what === "run") state.runs++, state.ms = ms;
  else if (what === "reset") note("a run was given up");
  else if (what === "open") {
    pause = PAUSE_MS;
    show("connected: it serves runs that ask for the device web", "good");
  } else if (what === "close") {
    link = null;
    if (wanted) again("the connection has ended; it is tried again");
    else show("not connected");
  }
  count();
}

// A WebSocket does not say why it was refused; the same address without one does.
async function refusal() {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  const reply = await fetch("v1/workers", { headers, cache: "no-store" });
  if (reply.ok) return null;
  const text = await reply.text();
  let said = text;
  try {
    said = JSON.parse(text).message ?? text;
  } catch { /* as it is */ }
  return { said: said.slice(0, 300), forNow: reply.status >= 500 || reply.status === 429 };
}
function again(text) {
  show(text, "bad");
  clearTimeout(timer);
  timer = setTimeout(connect, pause);
  pause = Math.min(pause * 2, MOST_PAUSE_MS);
}
async function connect() {
  let no;
  show("connecting");
  try {
    no = await refusal();
  } catch (e) {
    no = { said: `the server is not reached: ${e.message}`, forNow: true };
  }
  if (!wanted) return;
  if (no?.forNow) return again(no.said);
  if (no) return stop(`refused: ${no.said}`);
  const url = new URL("v1/workers", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const protocols = ["hlod.worker.v1", ...(token() ? [`hlod.token.${token()}`] : [])];
  link = new Link(url, protocols, $("choice").value, onEvent);
}
function stop(text) {
  wanted = false;
  clearTimeout(timer);
  link?.close();
  $("join").textContent = "Join";
  show(text, text === "not connected" ? "" : "bad");
}

$("token").value = sessionStorage.getItem("hlod-token") ?? "";
const asked = new URLSearchParams(location.search).get("backend");
if ([...$("choice").options].some((o) => o.value === asked)) $("choice").value = asked;
$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  if (wanted) return stop("not connected");
  wanted = true;
  sessionStorage.setItem("hlod-token", token());
  $("join").textContent = "Leave";
  connect();
});
addEventListener("pagehide", () => link?.close());
count();
show("not connected");

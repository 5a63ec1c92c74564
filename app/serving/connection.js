// Says that the connection is lost, and loads the page again once the server answers but the page does not come back.
// A page that never got a web socket is not loaded again, since the next one would get none either.
(() => {
  const CHECK_MS = 1000, PATIENCE = 4, DRAW_MS = 700, LEAVING_MS = 60_000;
  const {host} = document.documentElement.dataset;
  const PROXY = "(docs/deployment.md, Another proxy)";
  const TEXTS = {
    lost: "Connection lost. Runs continue; this page comes back by itself once the server answers.",
    socket: `The server answers, but not on web sockets, without which pages stay empty. A proxy in between must forward them ${PROXY}.`,
    host: `The workbench is asked for as ${host}, but the address has ${location.host}, so it refuses what this page asks for. A proxy in between must forward host and port unchanged ${PROXY}.`,
  };
  let banner = null, timer = 0, numAnswers = 0, leftAt = -Infinity, hadSocket = false;
  const show = (kind) => {
    if (!document.body || banner?.dataset.kind === kind) return;
    banner?.remove();
    banner = document.createElement("div");
    banner.id = "connection-lost";
    banner.dataset.kind = kind;
    banner.setAttribute("role", "alert");
    banner.textContent = TEXTS[kind];
    document.body.append(banner);
  };
  const check = async () => {
    if (!banner) show("lost");
    try {
      numAnswers = (await fetch("_stcore/health", {cache: "no-store"})).ok ? numAnswers + 1 : 0;
    } catch {
      numAnswers = 0;
    }
    // To load the page again would end a slow sign-out, or a slow loading of the page itself.
    if (numAnswers < PATIENCE || performance.now() - leftAt <= LEAVING_MS) return;
    if (hadSocket) location.reload();
    else show("socket");
  };
  const isDrawn = () => document.querySelector("[data-testid=stApp][data-test-script-state=notRunning]");
  const recover = () => {
    hadSocket = true;
    clearInterval(timer);
    timer = numAnswers = 0;
    const wait = setInterval(() => {
      if (!isDrawn()) return;
      clearInterval(wait);
      banner?.remove();
      banner = null;
    }, DRAW_MS);
  };
  if (new URL(`//${host}`, location).host !== location.host) addEventListener("DOMContentLoaded", () => show("host"));
  addEventListener("beforeunload", () => { leftAt = performance.now(); });
  addEventListener("pagehide", () => clearInterval(timer));
  window.WebSocket = class extends WebSocket {
    constructor(...parameters) {
      super(...parameters);
      this.addEventListener("message", recover, {once: true});
      this.addEventListener("close", () => { timer ||= setInterval(check, CHECK_MS); });
    }
  };
})();

// Says that the connection is lost, and loads the page again once the server answers but the page does not come back.
(() => {
  const CHECK_MS = 1000, PATIENCE = 4, DRAW_MS = 700, LEAVING_MS = 60_000;
  let banner = null, timer = 0, numAnswers = 0, leftAt = -Infinity;
  const show = () => {
    if (banner || !document.body) return;
    banner = document.createElement("div");
    banner.id = "connection-lost";
    banner.setAttribute("role", "alert");
    banner.textContent = "Connection lost. Runs continue; this page comes back by itself once the server answers.";
    document.body.append(banner);
  };
  const check = async () => {
    show();
    try {
      numAnswers = (await fetch("/_stcore/health", {cache: "no-store"})).ok ? numAnswers + 1 : 0;
    } catch {
      numAnswers = 0;
    }
    // To load the page again would end a slow sign-out, or a slow loading of the page itself.
    if (numAnswers >= PATIENCE && performance.now() - leftAt > LEAVING_MS) location.reload();
  };
  const isDrawn = () => document.querySelector("[data-testid=stApp][data-test-script-state=notRunning]");
  const recover = () => {
    clearInterval(timer);
    timer = numAnswers = 0;
    const wait = setInterval(() => {
      if (!isDrawn()) return;
      clearInterval(wait);
      banner?.remove();
      banner = null;
    }, DRAW_MS);
  };
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

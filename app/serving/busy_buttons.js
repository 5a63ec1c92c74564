// A clicked button is busy at once, and takes no second click until the server has answered.
(() => {
  const BUTTON = ":is([data-testid=stButton], [data-testid=stFormSubmitButton]) button:enabled";
  addEventListener("click", ({target}) => {
    const button = target.closest?.(BUTTON), app = document.querySelector("[data-testid=stApp]");
    if (!button || !app) return;
    let hasRun = false;
    const watch = new MutationObserver(() => {
      const isRunning = app.dataset.testScriptState !== "notRunning";
      if (hasRun && !isRunning) {
        button.removeAttribute("aria-busy");
        watch.disconnect();
      }
      hasRun ||= isRunning;
    });
    watch.observe(app, {attributeFilter: ["data-test-script-state"]});
    button.setAttribute("aria-busy", "true");
  }, true);
})();

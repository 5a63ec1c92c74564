// Keys of the workbench: / search, ? help, Ctrl-K to a page or to runs by their name.
(() => {
  const HELP = [["/", "Search"], ["Ctrl K", "Go to a page, or to runs by name"], ["Esc", "Close"], ["?", "This help"]];
  const isTyping = ({target}) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
  const element = (tag, text = "") => Object.assign(document.createElement(tag), {textContent: text});
  let panel = null;

  const close = () => { panel?.remove(); panel = null; };
  const open = (name) => {
    close();
    panel = element("dialog");
    panel.id = "keyboard-panel";
    panel.setAttribute("aria-label", name);
    const {backgroundColor, color} = getComputedStyle(document.querySelector("[data-testid=stApp]"));
    Object.assign(panel.style, {backgroundColor, color});
    panel.addEventListener("click", ({target}) => target === panel && close());
    panel.addEventListener("close", close);
    document.body.append(panel);
    panel.showModal();
  };
  const help = () => {
    open("Keys");
    panel.append(element("h2", "Keys"), element("dl"));
    for (const [key, meaning] of HELP) panel.lastChild.append(element("dt", key), element("dd", meaning));
  };
  const label = (link) => {
    const copy = link.cloneNode(true);
    copy.querySelectorAll("[data-testid=stIconMaterial]").forEach((icon) => icon.remove());
    return copy.textContent.trim();
  };
  const pages = () => [...document.querySelectorAll("[data-testid=stSidebarNavLink]")];
  const jump = () => {
    open("Go to");
    const input = element("input"), list = element("ul");
    input.placeholder = "Page, or words of a run's name";
    let chosen = 0;
    const entries = () => {
      const words = input.value.trim().toLowerCase();
      const found = pages().filter((link) => label(link).toLowerCase().includes(words));
      const go = found.map((link) => ({label: label(link), run: () => link.click()}));
      const search = {label: `Runs: ${input.value.trim()}`, run: () => { location.href = `/?q=${encodeURIComponent(input.value.trim())}`; }};
      return words ? [...go, search] : go;
    };
    const draw = () => {
      const all = entries();
      chosen = Math.max(0, Math.min(chosen, all.length - 1));
      list.replaceChildren(...all.map(({label, run}, index) => {
        const line = element("li", label);
        line.ariaSelected = String(index === chosen);
        line.addEventListener("click", () => { close(); run(); });
        return line;
      }));
    };
    input.addEventListener("input", () => { chosen = 0; draw(); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { const entry = entries()[chosen]; close(); entry?.run(); }
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") { chosen += event.key === "ArrowDown" ? 1 : -1; draw(); }
      else return;
      event.preventDefault();
    });
    panel.append(input, list);
    draw();
    input.focus();
  };
  const search = () => {
    const field = document.querySelector("[data-testid=stMain] input[placeholder^=Search]");
    field?.focus();
    field?.select();
  };
  const ACTIONS = {"/": search, "?": help};
  addEventListener("keydown", (event) => {
    const isJump = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
    if (!isJump && (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey || panel)) return;
    const action = isJump ? jump : ACTIONS[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }, true);
})();

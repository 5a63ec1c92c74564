// Keys of the workbench: / search, ? help, Ctrl-K to a page or a run; table.js has those of tables.
(() => {
  const HELP = `/        Search
Ctrl K   Go to a page or a run
j  k     Next and previous row, or trajectory
g  m     Group and mark of the open trajectory
Enter    Open the row
Esc      Close
?        This help`;
  const isTyping = ({target}) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
  const element = (tag, text = "") => Object.assign(document.createElement(tag), {textContent: text});
  const FIND_MS = 120;
  const leave = (address) => { location.href = address; };
  let panel = null;

  const close = () => { panel?.remove(); panel = null; };
  const open = (name) => {
    close();
    panel = element("dialog");
    panel.id = "keyboard-panel";
    panel.setAttribute("aria-label", name);
    panel.addEventListener("click", ({target}) => target === panel && close());
    panel.addEventListener("close", close);
    document.querySelector("[data-testid=stApp]").append(panel); // whose colours it has
    panel.showModal();
  };
  const help = () => {
    open("Keys");
    panel.append(element("pre", HELP));
  };
  const label = (link) => {
    const copy = link.cloneNode(true);
    copy.querySelectorAll("[data-testid=stIconMaterial]").forEach((icon) => icon.remove());
    return copy.textContent.trim();
  };
  const pages = () => [...document.querySelectorAll("[data-testid=stSidebarNavLink]")];
  const jump = () => {
    open("Go to");
    const input = element("input"), list = Object.assign(element("select"), {size: 9, tabIndex: -1});
    input.placeholder = "Page, or words of a run";
    let runs = [], wait = 0;
    const words = () => input.value.trim();
    const entries = () => {
      const found = pages().filter((link) => label(link).toLowerCase().includes(words().toLowerCase()));
      const go = found.map((link) => ({label: label(link), run: () => link.click()}));
      const open = runs.map(({id, name}) => ({label: `Run: ${name}`, run: () => leave(`run?run=${encodeURIComponent(id)}`)}));
      const search = {label: `All runs with: ${words()}`, run: () => leave(`.?q=${encodeURIComponent(words())}`)};
      return words() ? [...go, ...open, search] : [...go, ...open];
    };
    const find = async () => {
      const asked = words();
      const answer = await fetch(`_workbench/runs?words=${encodeURIComponent(asked)}`).catch(() => null);
      if (!answer?.ok || asked !== words()) return;
      runs = await answer.json();
      draw();
    };
    const draw = () => {
      list.replaceChildren(...entries().map(({label}) => element("option", label)));
      list.selectedIndex = 0;
    };
    const go = () => {
      const entry = entries()[list.selectedIndex];
      close();
      entry?.run();
    };
    list.addEventListener("click", go);
    input.addEventListener("input", () => {
      runs = [];
      draw();
      clearTimeout(wait);
      wait = setTimeout(find, FIND_MS);
    });
    input.addEventListener("keydown", (event) => {
      const change = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (event.key === "Enter") go();
      else if (change) list.selectedIndex = Math.max(0, Math.min(list.length - 1, list.selectedIndex + change));
      else return;
      event.preventDefault();
    });
    panel.append(input, list);
    draw();
    find();
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

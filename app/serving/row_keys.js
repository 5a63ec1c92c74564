// j and k move a mark through the rows of the page's first table, Enter opens the marked row as a click does. Where a
// row is open on its page, that page's own buttons have these keys.
(() => {
  const CLICK_X = 90, HEADER_REM = 2.1875;
  const mark = Object.assign(document.createElement("div"), {id: "row-mark"});
  let table = null, row = -1;

  const parts = () => {
    const grid = table?.querySelector("canvas [role=grid]"), scroller = table?.querySelector(".dvn-scroller");
    const numRows = Number(grid?.getAttribute("aria-rowcount")) - 1;
    if (!scroller || !(numRows > 0)) return null;
    const header = Math.round(HEADER_REM * parseFloat(getComputedStyle(document.documentElement).fontSize));
    const inner = scroller.querySelector(".dvn-stack") ?? scroller.firstElementChild;
    return {scroller, numRows, header, height: (inner.getBoundingClientRect().height - header) / numRows};
  };
  const clear = () => { mark.remove(); table = null; row = -1; };
  const place = () => {
    const found = table?.isConnected ? parts() : null;
    if (!found || row >= found.numRows) return clear();
    const {scroller, header, height} = found, box = scroller.getBoundingClientRect();
    const top = box.top + header + row * height - scroller.scrollTop;
    const isSeen = top >= box.top + header - 1 && top + height <= box.bottom + 1;
    Object.assign(mark.style, {
      display: isSeen ? "block" : "none", left: `${box.left}px`, top: `${top}px`, width: `${box.width}px`, height: `${height}px`,
    });
  };
  const move = (change) => {
    if (!table?.isConnected) {
      clear();
      table = document.querySelector("[data-testid=stMain] [data-testid=stDataFrame]");
    }
    const found = parts();
    if (!found) return;
    const {scroller, numRows, header, height} = found;
    row = Math.max(0, Math.min(numRows - 1, row + change));
    const seen = scroller.clientHeight - header;
    scroller.scrollTop = Math.min(row * height, Math.max(scroller.scrollTop, (row + 1) * height - seen));
    table.scrollIntoView({block: "nearest"});
    document.body.append(mark);
    place();
  };
  const open = () => {
    const canvas = table.querySelector("canvas"), box = mark.getBoundingClientRect();
    const at = {
      bubbles: true, cancelable: true, view: window, clientX: box.left + CLICK_X, clientY: box.top + box.height / 2,
      button: 0, pointerType: "mouse", isPrimary: true,
    };
    canvas.dispatchEvent(new PointerEvent("pointermove", at));
    canvas.dispatchEvent(new MouseEvent("mousemove", at));
    for (const kind of ["down", "up"]) {
      const buttons = kind === "down" ? 1 : 0;
      canvas.dispatchEvent(new PointerEvent(`pointer${kind}`, {...at, buttons}));
      canvas.dispatchEvent(new MouseEvent(`mouse${kind}`, {...at, buttons}));
    }
    canvas.dispatchEvent(new MouseEvent("click", at));
  };
  addEventListener("keydown", (event) => {
    const {target, key} = event;
    const isTyping = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
    const isOther = event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]");
    if (isTyping || isOther || document.querySelector(".st-key-next-trajectory")) return;
    const isOnButton = /^(BUTTON|A)$/.test(target.tagName);
    if (key === "j" || key === "k") move(key === "j" ? 1 : -1);
    else if (key === "Enter" && !isOnButton && mark.isConnected && mark.style.display === "block") open();
    else if (key === "Escape" && mark.isConnected) clear();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
  addEventListener("scroll", () => mark.isConnected && place(), true);
  addEventListener("resize", () => mark.isConnected && place());
  addEventListener("pointerdown", ({isTrusted}) => isTrusted && clear(), true);
  addEventListener("popstate", clear);
})();

// Draws every table: the browser's half of app/components/widgets/grid.py. Cells are texts of elements, never markup.
(() => {
  const CHUNK = 100, NEAR = 300, NONE = "–", SVG = "http://www.w3.org/2000/svg";
  const make = (tag, className = "", text = "") =>
    Object.assign(document.createElement(tag), {className, textContent: text});
  const toggle = (element, name, value) =>
    value === null ? element.removeAttribute(name) : element.setAttribute(name, value);

  const written = (value, format) => {
    if (format === "localized") return value.toLocaleString("en");
    if (format === "percent") return `${(100 * value).toFixed(0)}%`;
    const [, plus, digits, kind, percent] = /^%(\+?)(?:\.(\d+))?([dfg])(%%)?$/.exec(format ?? "") ?? [];
    // Without a format as `number` of app/formats.py writes it.
    const isWhole = Number.isInteger(value) || Math.abs(value) >= 999.5;
    let text = isWhole ? value.toLocaleString("en", {maximumFractionDigits: 0}) : String(Number(value.toPrecision(3)));
    if (kind === "d") text = value.toFixed(0);
    if (kind === "f") {
      const [whole, part] = value.toFixed(Number(digits ?? 6)).split(".");
      text = Number(whole).toLocaleString("en") + (part ? `.${part}` : "");
    }
    return `${plus && !text.startsWith("-") ? "+" : ""}${text}${percent ? "%" : ""}`;
  };
  const number = (value, format) => written(value, format).replace(/^-(?=[0.]*%?$)/, format?.includes("+") ? "+" : "");
  const text = (value, column) => {
    if (value === null || value === "") return column.kind === "text" && value === "" ? "" : NONE;
    if (typeof value === "boolean") return value ? "yes" : "no";
    return typeof value === "number" ? number(value, column.format) : [value].flat().join(", ");
  };
  const curve = (values, column) => {
    const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
    const at = (value, index) => `${(100 * index) / Math.max(1, values.length - 1)},${20 - (20 * value) / (column.most || 1)}`;
    svg.setAttribute("viewBox", "0 0 100 20");
    svg.setAttribute("preserveAspectRatio", "none");
    path.setAttribute("d", `M0,20 L${values.map(at).join(" L")} L100,20 Z`);
    svg.append(path);
    return svg;
  };
  const cell = (value, column) => {
    const td = make("td", [column.kind, column.isRight ? "right" : "", column.fills ? "fills" : ""].join(" "));
    if (Array.isArray(value) && column.kind === "curve") {
      if (value.length > 1) td.append(curve(value, column));
    } else if (Array.isArray(value)) {
      for (const name of value.filter((item) => item !== null && item !== "")) {
        const badge = make("span", "badge", name);
        if (column.colours?.[name]) badge.style.background = column.colours[name];
        badge.classList.toggle("coloured", column.colours?.[name]?.startsWith("#") ?? false);
        td.append(badge);
      }
      if (!td.childNodes.length) td.textContent = NONE;
    } else if (column.kind === "progress" && value !== null) {
      const bar = make("span", "bar");
      bar.style.setProperty("--done", `${(100 * value) / column.most}%`);
      td.append(bar, text(value, column));
    } else td.textContent = text(value, column);
    return td;
  };
  const compare = (column) => (one, two) => {
    const [a, b] = [one, two].map((value) => (Array.isArray(value) ? String(column.kind === "curve" ? value.at(-1) ?? "" : value) : value));
    const [x, y] = [a, b].map((value) => (column.isRight && typeof value === "string" ? parseFloat(value.replaceAll(",", "")) : value));
    if (typeof x === "number" && typeof y === "number" && !Number.isNaN(x - y)) return x - y;
    return String(a).localeCompare(String(b), "en", {numeric: true});
  };
  // In two lines at most, which have room in a row, where the columns are wider than the page.
  const addLabel = (parent, label) => {
    const middle = label.length / 2, gaps = [...label.matchAll(/(?<!^±) /g)].map(({index}) => index);
    const [gap] = gaps.sort((one, two) => Math.abs(one - middle) - Math.abs(two - middle));
    parent.append(make("span", "", label.slice(0, gap)));
    if (gap) parent.append(" ", make("span", "", label.slice(gap + 1)));
  };
  const isEmpty = (value) => value === null || value === "" || value === NONE || (Array.isArray(value) && !value.length);

  class Table {
    constructor(parent) {
      this.frame = make("div", "data-table");
      this.frame.tabIndex = 0;
      const table = make("table");
      this.head = table.createTHead().insertRow();
      this.body = table.createTBody();
      this.frame.append(table);
      parent.append(this.frame);
      this.order = null;
      this.drawn = [];
      this.frame.addEventListener("scroll", () => this.extend());
      this.frame.addEventListener("mouseover", ({target}) => {
        const place = target.closest("td, th");
        if (place && !place.dataset.help) place.title = place.scrollWidth > place.clientWidth ? place.textContent : "";
      });
      this.body.addEventListener("click", (event) => {
        const row = event.target.closest("tr"), td = event.target.closest("td");
        if (row && td && !td.matches(".tick") && getSelection().isCollapsed) this.open(row, td);
      });
    }
    update({data, setTriggerValue, setStateValue}) {
      const was = this.data, isNew = JSON.stringify(was?.columns) !== JSON.stringify(data.columns);
      Object.assign(this, {data, setTriggerValue, setStateValue});
      this.ticked ??= new Set(data.ticked); // what was ticked since is known here first
      this.frame.removeAttribute("aria-busy");
      toggle(this.frame, "data-opens", data.opens ? "" : null);
      this.frame.firstChild.setAttribute("aria-label", data.alt);
      this.frame.firstChild.setAttribute("aria-rowcount", (data.total ?? data.rows.length) + 1);
      if (isNew) this.drawHead();
      if (was && JSON.stringify(was.order) !== JSON.stringify(data.order)) this.frame.scrollTop = 0;
      this.arrange(Math.max(CHUNK, this.body.rows.length));
      if (!was && data.opened !== null) {
        const row = this.body.querySelector("[aria-selected=true]");
        if (row) this.frame.scrollTop = row.offsetTop - this.head.offsetHeight * 2;
      }
    }
    drawHead() {
      this.order = null;
      this.head.replaceChildren(...this.data.columns.map((column, index) => {
        const th = make("th", column.isRight ? "right" : "");
        th.scope = "col";
        if (column.help) Object.assign(th, {title: column.help}).dataset.help = "";
        if (!column.sorts) addLabel(th, column.label);
        else {
          const button = make("button");
          button.type = "button";
          addLabel(button, column.label);
          button.addEventListener("click", () => this.sort(index));
          th.append(button);
        }
        return th;
      }));
      if (this.data.ticked) this.head.prepend(this.tick(null, "all rows", make("th", "tick")));
      this.widths = this.data.columns.map(({kind, width}) => (width && kind === "text" ? `${width}px` : ""));
      this.drawn = [];
    }
    tick(id, name, place) {
      const box = make("input");
      Object.assign(box, {type: "checkbox", ariaLabel: `Choose ${name}`});
      box.addEventListener("change", () => {
        for (const each of id === null ? this.data.ids : [id]) box.checked ? this.ticked.add(each) : this.ticked.delete(each);
        this.drawRows(this.body.rows.length);
        this.setStateValue("ticked", [...this.ticked]);
      });
      place.append(box);
      return place;
    }
    sort(index) {
      const {name, startsHigh} = this.data.columns[index], now = this.data.order ?? this.order;
      const isDescending = now?.name === name ? !now.isDescending : startsHigh;
      const order = {name, isDescending};
      if (!this.data.order) {
        this.order = order;
        this.frame.scrollTop = 0;
        return this.arrange(Math.min(CHUNK, this.data.rows.length));
      }
      this.frame.setAttribute("aria-busy", "true");
      this.setTriggerValue("sorted", order);
    }
    arrange(most) {
      const {columns, rows} = this.data, order = this.data.order ?? this.order;
      const heads = [...this.head.children].slice(this.data.ticked ? 1 : 0);
      const sorted = columns.findIndex(({name}) => name === order?.name);
      heads.forEach((th, index) => toggle(
        th, "aria-sort", index !== sorted ? null : order.isDescending ? "descending" : "ascending"));
      this.places = [...rows.keys()];
      if (!this.data.order && sorted >= 0) {
        const sign = order.isDescending ? -1 : 1, by = compare(columns[sorted]), key = (place) => rows[place][sorted];
        this.places.sort((a, b) =>
          isEmpty(key(a)) - isEmpty(key(b)) || (isEmpty(key(a)) ? 0 : sign * by(key(a), key(b))) || a - b);
      }
      this.drawRows(Math.min(most, rows.length));
    }
    drawRows(most) {
      const {columns, rows, ids, opened, ticked} = this.data;
      for (let at = 0; at < most; at++) {
        const place = this.places[at], values = rows[place], state = JSON.stringify([place, ids[place], values]);
        const row = this.body.rows[at] ?? this.body.insertRow();
        if (this.drawn[at] !== state) {
          const cells = values.map((value, index) => cell(value, columns[index]));
          cells.forEach((td, index) => (td.style.maxWidth = this.widths[index]));
          if (ticked) cells.unshift(this.tick(ids[place], `row ${place + 1}`, make("td", "tick")));
          row.replaceChildren(...cells);
          Object.assign(row, {tabIndex: -1, place});
          this.drawn[at] = state;
        }
        if (ticked) row.querySelector("input").checked = this.ticked.has(ids[place]);
        toggle(row, "aria-selected", opened !== null && ids[place] === opened ? "true" : null);
      }
      while (this.body.rows.length > most) this.body.deleteRow(-1);
      this.drawn.length = most;
      const all = this.head.querySelector("input");
      if (all) all.checked = ids.length > 0 && ids.every((id) => this.ticked.has(id));
    }
    extend() {
      const {scrollTop, clientHeight, scrollHeight} = this.frame, {rows, total} = this.data, shown = this.body.rows.length;
      if (scrollTop + clientHeight < scrollHeight - NEAR) return;
      if (shown < rows.length) this.drawRows(Math.min(shown + CHUNK, rows.length));
      else if (rows.length < (total ?? 0) && this.frame.ariaBusy !== "true") {
        this.frame.setAttribute("aria-busy", "true");
        this.setTriggerValue("more", rows.length);
      }
    }
    open(row, td) {
      const first = this.data.ticked ? 1 : 0;
      const {columns, ids, opens} = this.data, column = columns[td.cellIndex - first].name;
      if (opens) this.setTriggerValue("opened", {id: ids[row.place], column});
    }
    move(change) {
      const now = document.activeElement.closest("tr"), rows = this.body.rows;
      const next = now && this.body.contains(now) ? now.sectionRowIndex + change : 0;
      const row = rows[Math.max(0, Math.min(rows.length - 1, next))];
      row?.focus({preventScroll: true});
      row?.scrollIntoView({block: "nearest"});
      if (row === rows[rows.length - 1]) this.extend();
    }
  }

  const tables = new WeakMap();
  window.exgrpoTable = (component) => {
    const parent = component.parentElement;
    if (!tables.has(parent)) tables.set(parent, new Table(parent));
    tables.get(parent).update(component);
  };
  // Keys move through the rows of the page's first table; where a row is open, its buttons have j and k.
  addEventListener("keydown", (event) => {
    const {target, key} = event, isOpen = document.querySelector(".st-key-next-trajectory") !== null;
    const inside = target.closest?.(".data-table[data-opens]"), row = target.closest?.(".data-table tbody tr");
    const change = {j: isOpen ? 0 : 1, k: isOpen ? 0 : -1, ArrowDown: inside ? 1 : 0, ArrowUp: inside ? -1 : 0}[key];
    const isTyping = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
    const frame = inside ?? document.querySelector("[data-testid=stMain] .data-table[data-opens]");
    if (!frame || isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const table = tables.get(frame.parentElement);
    if (change) table.move(change);
    else if (key === "Enter" && row === target) table.open(row, row.cells[table.data.ticked ? 1 : 0]);
    else if (key === "Escape" && inside) document.activeElement.blur();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
})();

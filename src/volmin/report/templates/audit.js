"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  if (!data.rows.length) return;
  const PER_PAGE = data.images.length ? 24 : 25;
  const KINDS = ["wrong", "right", "unsure"];
  const STORE = "volmin-audit-" + data.key;
  let decisions = {};  // from a position in the list to {kind, label, sample}
  let matching = [];
  let page = 0;

  try { decisions = JSON.parse(localStorage.getItem(STORE)) || {}; } catch { /* pages opened from disk may have no storage */ }

  function store() {
    try { localStorage.setItem(STORE, JSON.stringify(decisions)); } catch { /* decisions are then lost when the page is closed */ }
    const count = Object.keys(decisions).length;
    find("download").disabled = count === 0;
    find("download").textContent = count ? `download ${count} decision${count > 1 ? "s" : ""}` : "download decisions";
  }

  function make(tag, text, className) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;  // never HTML: labels and cells may hold anything
    if (className) element.className = className;
    return element;
  }

  function fillSelect(select, codes) {
    const counts = new Map();
    for (const code of codes) counts.set(code, (counts.get(code) || 0) + 1);
    for (const code of [...counts.keys()].sort((a, b) => a - b)) {
      const option = make("option", `${data.classes[code]} (${counts.get(code)})`);
      option.value = code;
      select.append(option);
    }
  }

  function decide(place, kind, label) {
    if (kind) decisions[place] = { kind, label, sample: find("sample").value };
    else delete decisions[place];
  }

  function certainty(probability) {
    return probability > 0.999 ? "> 99.9 %" : `${(100 * probability).toFixed(1)} %`;
  }

  // The label to offer for a row that is marked as wrong: another class than the given one.
  function alternative(place) {
    if (data.suggested[place] !== data.given[place]) return data.suggested[place];
    return data.given[place] === 0 ? 1 : 0;
  }

  function card(place) {
    const element = make("article", undefined, "card");
    const given = data.classes[data.given[place]];
    const suggested = data.classes[data.suggested[place]];
    const decision = decisions[place];
    element.dataset.row = data.rows[place];
    if (decision) element.dataset.decision = decision.kind;
    if (data.images.length) {
      const image = make("img");
      image.src = data.images[place];
      image.alt = `row ${data.rows[place]}, labelled ${given}`;
      image.onload = () => image.classList.toggle("tiny", image.naturalHeight < 48);
      element.append(image);
    }
    const claim = make("div", undefined, "claim");
    claim.append("labelled ", make("b", given));
    if (suggested !== given) claim.append(", probably ", make("b", suggested));
    const meta = make("div", undefined, "meta");
    meta.append(make("span", data.names.length ? data.names[place] : `row ${data.rows[place]}`, "name"), make("span", `wrong: ${certainty(data.wrong[place])}`));
    element.append(claim, meta);
    if (data.columns.length) {
      const cells = make("dl", undefined, "body");
      data.columns.forEach((name, column) => {
        const pair = make("div");
        pair.append(make("dt", name), make("dd", data.cells[place][column]));
        cells.append(pair);
      });
      element.append(cells);
    }
    const choices = make("fieldset");
    choices.append(make("legend", `Is the label ${given} of row ${data.rows[place]} wrong?`));
    const label = make("select");
    label.setAttribute("aria-label", `true label of row ${data.rows[place]}`);
    data.classes.forEach((name, code) => {
      const option = make("option", name);
      option.value = code;
      label.append(option);
    });
    label.value = decision && decision.kind === "wrong" ? decision.label : alternative(place);
    label.hidden = !decision || decision.kind !== "wrong";
    label.onchange = () => { decide(place, "wrong", Number(label.value)); store(); };
    for (const kind of KINDS) {
      const choice = make("label");
      const radio = make("input");
      radio.type = "radio";
      radio.name = `row-${data.rows[place]}`;
      radio.value = kind;
      radio.checked = Boolean(decision) && decision.kind === kind;
      radio.onchange = () => {
        decide(place, kind, Number(label.value));
        element.dataset.decision = kind;
        label.hidden = kind !== "wrong";
        store();
      };
      choice.append(radio, kind);
      choices.append(choice);
    }
    choices.append(label);
    element.append(choices);
    return element;
  }

  function show() {
    const pages = Math.max(1, Math.ceil(matching.length / PER_PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    const places = matching.slice(page * PER_PAGE, (page + 1) * PER_PAGE);
    find("cards").replaceChildren(...places.map(card));
    const first = matching.length ? page * PER_PAGE + 1 : 0;
    find("shown").textContent = `${first}–${first ? first + places.length - 1 : 0} of ${matching.length}`;
    find("previous").disabled = page === 0;
    find("next").disabled = page === pages - 1;
  }

  function filter() {
    const given = find("given").value, suggested = find("suggested").value, decided = find("decided").value;
    const random = find("sample").value === "random";
    matching = [];
    // By suspicion; random rows stay in the order in which they were drawn.
    const places = data.rows.map((_, place) => place);
    if (!random) places.sort((a, b) => data.rank[a] - data.rank[b]);
    places.forEach((place) => {
      const kind = decisions[place] ? decisions[place].kind : "none";
      if ((random ? place < data.random : data.flagged[place]) &&
          (given === "" || data.given[place] === Number(given)) &&
          (suggested === "" || data.suggested[place] === Number(suggested)) &&
          (decided === "" || kind === decided)) matching.push(place);
    });
    for (const button of document.querySelectorAll(".pairs button"))
      button.setAttribute("aria-pressed", String(button.dataset.given === given && button.dataset.suggested === suggested));
    page = 0;
    show();
  }

  function visible() {
    return matching.slice(page * PER_PAGE, (page + 1) * PER_PAGE);
  }

  // As in volmin.io.spreadsheets: spreadsheet programs must not evaluate a label as a formula.
  function cell(value) {
    let text = String(value);
    if (/^[=+\-@\t\r\n]/.test(text) && !/^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  function download() {
    const lines = ["row,given,suggested,probability_wrong,decision,label,sample"];
    for (const place of Object.keys(decisions).map(Number).sort((a, b) => a - b)) {
      const { kind, label, sample } = decisions[place];
      const names = [data.given[place], data.suggested[place]].map((code) => data.classes[code]);
      const corrected = kind === "wrong" ? data.classes[label] : "";
      lines.push([data.rows[place], ...names, data.wrong[place], kind, corrected, sample].map(cell).join(","));
    }
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = "decisions.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  if (!data.images.length) find("cards").classList.add("rows");
  if (!data.flagged.some(Boolean)) find("sample").value = "random";
  fillSelect(find("given"), data.given);
  fillSelect(find("suggested"), data.suggested);
  for (const id of ["sample", "given", "suggested", "decided"]) find(id).onchange = filter;
  for (const button of document.querySelectorAll(".pairs button")) {
    button.onclick = () => {
      const pressed = button.getAttribute("aria-pressed") === "true";
      for (const id of ["given", "suggested"]) {
        const select = find(id), wanted = button.dataset[id];
        const there = [...select.options].some((option) => option.value === wanted);
        if (!pressed && !there) select.append(Object.assign(make("option", `${data.classes[wanted]} (0)`), { value: wanted }));
        select.value = pressed ? "" : wanted;
      }
      filter();
    };
  }
  find("previous").onclick = () => { page -= 1; show(); };
  find("next").onclick = () => { page += 1; show(); };
  find("all-wrong").onclick = () => { for (const place of visible()) decide(place, "wrong", alternative(place)); store(); show(); };
  find("clear").onclick = () => { for (const place of visible()) decide(place); store(); show(); };
  find("download").onclick = download;
  store();
  filter();
})();

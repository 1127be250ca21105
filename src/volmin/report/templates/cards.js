"use strict";
// What the review shows and writes of single rows: their cards, and the table of decisions.
function cardsOf(data) {
  const KINDS = ["wrong", "right", "unsure"];

  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const amount = (number) => number.toLocaleString("en-US");

  function make(tag, text, className) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;  // never HTML: labels and cells may hold anything
    if (className) element.className = className;
    return element;
  }

  // The label to offer for a row that is marked as wrong: another class than the given one.
  function alternative(place) {
    if (data.suggested[place] !== data.given[place]) return data.suggested[place];
    return data.given[place] === 0 ? 1 : 0;
  }

  function claim(place) {
    const given = data.classes[data.given[place]], suggested = data.classes[data.suggested[place]];
    const text = make("span", "labelled ", "claim");
    text.append(make("b", given));
    if (suggested !== given) text.append(", probably ", make("b", suggested));
    return text;
  }

  // The card of a row; the actions are what its controls do.
  function card(place, { enlarge, decide, focus }) {
    const element = make("article", undefined, "card");
    const row = data.rows[place];
    element.dataset.row = row;
    element.dataset.place = place;
    element.tabIndex = -1;
    element.setAttribute("aria-label", `row ${row}, labelled ${data.classes[data.given[place]]}`);
    if (data.images.length) {
      const button = make("button", undefined, "thumb");
      const image = make("img");
      button.type = "button";
      image.src = data.images[place];
      image.alt = `row ${row}, labelled ${data.classes[data.given[place]]}: enlarge`;
      image.classList.toggle("tiny", data.tiny);
      button.append(image);
      button.onclick = () => enlarge(place);
      element.append(button);
    }
    const meta = make("div", undefined, "meta");
    const wrong = data.wrong[place] > 0.999 ? "over 99.9%" : percent(data.wrong[place]);
    meta.append(make("span", data.names.length ? data.names[place] : `row ${row}`, "name"), make("span", `wrong: ${wrong}`));
    element.append(claim(place), meta);
    if (data.columns.length) {
      const cells = make("dl", undefined, "body");
      data.columns.forEach((name, column) => {
        if (data.cells[place][column] === "") return;
        const pair = make("div");
        pair.append(make("dt", name), make("dd", data.cells[place][column]));
        cells.append(pair);
      });
      element.append(cells);
    }
    const choices = make("fieldset");
    choices.append(make("legend", `Is the label ${data.classes[data.given[place]]} of row ${row} wrong?`));
    const label = make("select");
    label.setAttribute("aria-label", `true label of row ${row}`);
    data.classes.forEach((name, code) => {
      const option = make("option", name);
      option.value = code;
      label.append(option);
    });
    label.onchange = () => decide([place], "wrong", Number(label.value));
    for (const kind of KINDS) {
      const choice = make("label");
      const radio = make("input");
      radio.type = "radio";
      radio.name = `row-${row}`;
      radio.value = kind;
      radio.onchange = () => decide([place], kind, Number(label.value));
      choice.append(radio, kind);
      choices.append(choice);
    }
    choices.append(label);
    element.append(choices);
    element.onfocus = () => focus(place);
    return element;
  }

  // As in volmin.io.spreadsheets: spreadsheet programs must not evaluate a label as a formula.
  function cell(value) {
    let text = String(value);
    if (/^[=+\-@\t\r\n]/.test(text) && !/^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  // The decisions as a table, which `volmin audit --apply` reads.
  function csv(decisions) {
    const lines = ["row,given,suggested,probability_wrong,decision,label,sample"];
    for (const place of Object.keys(decisions).map(Number).sort((a, b) => a - b)) {
      const { kind, label, sample } = decisions[place];
      const names = [data.given[place], data.suggested[place]].map((code) => data.classes[code]);
      const corrected = kind === "wrong" ? data.classes[label] : "";
      lines.push([data.rows[place], ...names, data.wrong[place], kind, corrected, sample].map(cell).join(","));
    }
    return lines.join("\n") + "\n";
  }

  return { make, amount, percent, alternative, claim, card, csv };
}

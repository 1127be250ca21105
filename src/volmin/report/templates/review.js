"use strict";
// The list of labels to review: choice of rows, decisions by pointer or key, undo, progress.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  if (!data.rows.length) return;
  const { make, amount, percent, alternative, claim, card, csv } = cardsOf(data);
  const PER_PAGE = data.images.length ? 24 : 25;
  const FEWEST_STATED = 10;  // decisions before which no noise rate is stated
  const STORE = "volmin-audit-" + data.key;
  let decisions = {};  // from a position in the list to {kind, label, sample}
  let undone = [];  // the decisions before each change, the latest last
  let matching = [];
  let page = 0;
  let current = 0;  // the card that keys act on

  try { decisions = JSON.parse(localStorage.getItem(STORE)) || {}; } catch { /* pages opened from disk may have no storage */ }

  function fillSelect(select, codes) {
    const counts = new Map();
    for (const code of codes) counts.set(code, (counts.get(code) || 0) + 1);
    for (const code of [...counts.keys()].sort((a, b) => a - b)) {
      const option = make("option", `${data.classes[code]} (${amount(counts.get(code))})`);
      option.value = code;
      select.append(option);
    }
  }

  const inSample = (place, random) => random ? place < data.random : data.flagged[place];

  // As `Corrected.known`: if rows of the random sample were decided, only those count.
  function rateText() {
    const decided = Object.keys(decisions).map(Number).filter((place) => decisions[place].kind !== "unsure");
    const random = decided.some((place) => decisions[place].sample === "random");
    const places = random ? decided.filter((place) => decisions[place].sample === "random") : decided;
    if (places.length < FEWEST_STATED) return places.length ? `noise rate stated from ${FEWEST_STATED} decisions on` : "";
    const wrong = places.map((place) => Number(decisions[place].kind === "wrong"));
    const [low, high] = noiseRateAfter(data.review, places, places.map((place) => data.wrong[place]), wrong, random);
    return `noise rate now ${percent(low)} to ${percent(high)}`;
  }

  function refresh() {
    try { localStorage.setItem(STORE, JSON.stringify(decisions)); } catch { /* decisions are then lost when the page is closed */ }
    const count = Object.keys(decisions).length;
    const random = find("sample").value === "random";
    const listed = data.rows.map((_, place) => place).filter((place) => inSample(place, random));
    const done = listed.filter((place) => decisions[place]).length;
    const rate = rateText();
    find("progress").textContent = `${amount(done)} of ${amount(listed.length)} decided${rate ? `, ${rate}` : ""}`;
    find("meter").max = Math.max(1, listed.length);
    find("meter").value = done;
    find("undo").disabled = !undone.length;
    find("download").disabled = count === 0;
    find("download").textContent = count ? `download ${amount(count)} decision${count > 1 ? "s" : ""}` : "download decisions";
  }

  // One step, which undo takes back as a whole.
  function decide(places, kind, label) {
    undone.push(Object.fromEntries(places.map((place) => [place, decisions[place]])));
    for (const place of places) {
      if (kind) decisions[place] = { kind, label: label ?? alternative(place), sample: find("sample").value };
      else delete decisions[place];
      mark(place);
    }
    refresh();
  }

  function undo() {
    const before = undone.pop();
    if (!before) return;
    for (const [place, decision] of Object.entries(before)) {
      if (decision) decisions[place] = decision; else delete decisions[place];
    }
    const place = Number(Object.keys(before)[0]);
    if (matching.includes(place)) {
      page = Math.floor(matching.indexOf(place) / PER_PAGE);
      show();
      select(matching.indexOf(place) % PER_PAGE);
    } else show();
    refresh();
  }

  function enlarge(place) {
    const dialog = find("large");
    const image = dialog.querySelector("img");
    image.src = data.images[place];
    image.alt = `row ${data.rows[place]}, labelled ${data.classes[data.given[place]]}, enlarged`;
    image.classList.toggle("tiny", data.tiny);
    dialog.querySelector("p").replaceChildren(claim(place));
    dialog.showModal();
  }

  // Shows the decision about a row on its card, if that is on the page.
  function mark(place) {
    const element = find("cards").querySelector(`[data-place="${place}"]`);
    if (!element) return;
    const decision = decisions[place];
    if (decision) element.dataset.decision = decision.kind; else delete element.dataset.decision;
    for (const radio of element.querySelectorAll("input")) radio.checked = Boolean(decision) && radio.value === decision.kind;
    const label = element.querySelector("select");
    label.hidden = !decision || decision.kind !== "wrong";
    label.value = decision && decision.kind === "wrong" ? decision.label : alternative(place);
  }

  const actions = { enlarge, decide, focus: (place) => select(matching.indexOf(place) % PER_PAGE, false) };

  function visible() {
    return matching.slice(page * PER_PAGE, (page + 1) * PER_PAGE);
  }

  function show() {
    const pages = Math.max(1, Math.ceil(matching.length / PER_PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    const places = visible();
    find("cards").replaceChildren(...places.map((place) => card(place, actions)));
    places.forEach(mark);
    const first = matching.length ? page * PER_PAGE + 1 : 0;
    find("shown").textContent = `${amount(first)}–${amount(first ? first + places.length - 1 : 0)} of ${amount(matching.length)}`;
    find("previous").disabled = page === 0;
    find("next").disabled = page === pages - 1;
    select(0, false);
  }

  function select(position, focus = true) {
    current = position;
    const cards = [...find("cards").children];
    cards.forEach((element, k) => element.classList.toggle("current", k === current));
    if (focus && cards[current]) cards[current].focus();
  }

  function move(step) {
    const next = current + step, places = visible();
    if (next >= 0 && next < places.length) select(next);
    else if (page * PER_PAGE + next >= 0 && page * PER_PAGE + next < matching.length) {
      page += Math.sign(step);
      show();
      select(step > 0 ? 0 : visible().length - 1);
    }
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
      if (inSample(place, random) &&
          (given === "" || data.given[place] === Number(given)) &&
          (suggested === "" || data.suggested[place] === Number(suggested)) &&
          (decided === "" || kind === decided)) matching.push(place);
    });
    for (const button of document.querySelectorAll(".pairs button"))
      button.setAttribute("aria-pressed", String(button.dataset.given === given && button.dataset.suggested === suggested));
    page = 0;
    show();
    refresh();
  }

  function onKey(event) {
    if (find("large").open || event.target.tagName === "SELECT" || event.altKey) return;
    const undoing = event.key === "z" && (event.ctrlKey || event.metaKey);
    if (!undoing && (!find("keys").checked || event.ctrlKey || event.metaKey)) return;
    const place = visible()[current];
    const kind = { w: "wrong", r: "right", u: "unsure" }[event.key];
    if (event.key === "z") undo();
    else if (kind && place !== undefined) { decide([place], kind); move(1); }
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "e" && data.images.length && place !== undefined) enlarge(place);
    else return;
    event.preventDefault();
  }

  function download() {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([csv(decisions)], { type: "text/csv" }));
    link.download = "decisions.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  function choosePair(button) {
    const pressed = button.getAttribute("aria-pressed") === "true";
    for (const id of ["given", "suggested"]) {
      const select = find(id), wanted = button.dataset[id];
      const there = [...select.options].some((option) => option.value === wanted);
      if (!pressed && !there) select.append(Object.assign(make("option", `${data.classes[wanted]} (0)`), { value: wanted }));
      select.value = pressed ? "" : wanted;
    }
    filter();
    if (!pressed) find("labels").scrollIntoView();
  }

  // A point of the map that is in the list: show its card.
  function openPoint(place) {
    if (!inSample(place, find("sample").value === "random")) find("sample").value = data.flagged[place] ? "flagged" : "random";
    for (const id of ["given", "suggested", "decided"]) find(id).value = "";
    filter();
    page = Math.floor(matching.indexOf(place) / PER_PAGE);
    show();
    select(matching.indexOf(place) % PER_PAGE);
  }

  if (!data.images.length) find("cards").classList.add("rows");
  if (!data.flagged.some(Boolean)) find("sample").value = "random";
  fillSelect(find("given"), data.given);
  fillSelect(find("suggested"), data.suggested);
  for (const id of ["sample", "given", "suggested", "decided"]) find(id).onchange = filter;
  for (const button of document.querySelectorAll(".pairs button")) button.onclick = () => choosePair(button);
  find("previous").onclick = () => { page -= 1; show(); };
  find("next").onclick = () => { page += 1; show(); };
  find("all-wrong").onclick = () => decide(visible(), "wrong");
  find("clear").onclick = () => decide(visible().filter((place) => decisions[place]));
  find("undo").onclick = undo;
  find("download").onclick = download;
  find("close").onclick = () => find("large").close();
  if (find("map")) find("map").onclick = (event) => {
    const point = event.target.closest("[data-place]");
    if (point) openPoint(Number(point.dataset.place));
  };
  document.addEventListener("keydown", onKey);
  const narrow = matchMedia("(max-width: 46rem)");
  const fold = () => { find("filters").open = !narrow.matches; };  // so that the first label is seen without scrolling
  narrow.onchange = fold;
  fold();
  filter();
})();

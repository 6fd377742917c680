"use strict";
// Everything the policy wrote is set as text (textContent), never as markup.
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // ---- theme
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const now = root.dataset.theme || (dark() ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });

  // ---- values under the pointer
  const tip = $("tip");
  const pretty = (value, unit) => {
    if (typeof value !== "number") return String(value);
    if (unit === "fraction") return (100 * value).toFixed(1) + " %";
    if (unit === "bytes") {
      const names = ["B", "KiB", "MiB", "GiB", "TiB"];
      let index = 0;
      while (Math.abs(value) >= 1024 && index < 4) { value /= 1024; index += 1; }
      return value.toPrecision(3) + " " + names[index];
    }
    if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2);
    return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
  };
  const nearest = (steps, wanted) => {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] < wanted) low = middle; else high = middle;
    }
    return wanted - steps[low] <= steps[high] - wanted ? steps[low] : steps[high];
  };
  for (const svg of document.querySelectorAll("svg[data-chart]")) {
    let data = null;
    const cursor = svg.querySelector(".cursor");
    svg.addEventListener("pointermove", (event) => {
      data = data || JSON.parse(svg.dataset.chart);
      const box = svg.getBoundingClientRect();
      const [left, right, first, last] = data.x;
      const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const share = Math.min(1, Math.max(0, (at - left) / (right - left)));
      const step = nearest(data.steps, first + share * (last - first));
      const x = last === first ? (left + right) / 2 : left + ((right - left) * (step - first)) / (last - first);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.style.opacity = 0.35;
      tip.replaceChildren(make("b", "", "step " + step.toLocaleString("en")));
      const unit = data.unit === "fraction" || data.unit === "bytes" ? "" : data.unit;
      for (const series of data.series) {
        if (!(step in series.at)) continue;
        const line = make("div");
        line.append(make("i", series.colour), series.name + " " + pretty(series.at[step], data.unit) + (unit ? " " + unit : ""));
        tip.append(line);
      }
      tip.hidden = false;
      const width = tip.offsetWidth, height = tip.offsetHeight;
      tip.style.left = Math.max(6, Math.min(innerWidth - width - 8, event.clientX + 14)) + "px";
      tip.style.top = (event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 16) + "px";
    });
    svg.addEventListener("pointerleave", () => { cursor.style.opacity = 0; tip.hidden = true; });
  }

  // ---- the browser of rollouts
  if (!$("payload")) return;
  const payload = JSON.parse($("payload").textContent);
  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  const form = $("filters"), list = $("list"), detail = $("detail"), count = $("count");
  const tabs = [...document.querySelectorAll(".modes button")];
  const modes = {};
  const PAGE = 150;
  let mode = tabs[0].dataset.mode, rows = [], chosen = null, shown = PAGE, tint = false, whole = false, turn = 0;

  const open = async (name) => {
    if (modes[name]) return modes[name];
    const index = await unpack(payload[name].index);
    const rewards = index.flatMap((row) => row.r.map((r) => r[0])).filter((value) => typeof value === "number");
    modes[name] = {
      index,
      blobs: new Map(payload[name].blobs.map((blob) => [blob.step, blob.data])),
      groups: new Map(),
      best: rewards.reduce((a, b) => Math.max(a, b), -Infinity),
      worst: rewards.reduce((a, b) => Math.min(a, b), Infinity),
    };
    return modes[name];
  };
  const groupOf = async (current, row) => {
    if (!current.groups.has(row.s)) current.groups.set(row.s, await unpack(current.blobs.get(row.s)));
    return current.groups.get(row.s)[row.p];
  };

  const fill = (name, values) => {
    const select = form.elements[name], before = select.value;
    while (select.options.length > 1) select.remove(1);
    for (const value of [...values].sort()) select.add(new Option(value.replaceAll("_", " ") || "trained on", value || "trained"));
    select.value = [...select.options].some((option) => option.value === before) ? before : "";
    select.parentElement.hidden = values.size < 2;
  };
  const grade = (reward, current) => {
    if (typeof reward !== "number") return "unjudged";
    if (current.best === current.worst) return reward > 0 ? "full" : "";
    const share = (reward - current.worst) / (current.best - current.worst);
    return share >= 1 ? "full" : share > 0 ? "part" : "";
  };
  const share = (reward, current) =>
    typeof reward !== "number" ? 0
      : current.best === current.worst ? (reward > 0 ? 1 : 0)
        : (reward - current.worst) / (current.best - current.worst);

  const textOf = (group, index) => {
    const completion = group.c[index];
    completion.hay = completion.hay || [
      group.id, group.answer, ...group.prompt.map((pair) => pair[1]),
      ...completion.turns.map((part) => part.text), ...completion.verdicts.flatMap((v) => [v[0], v[1], v[3], ...v[5]]),
    ].join("\n").toLowerCase();
    return completion.hay;
  };

  const filter = async () => {
    const mine = ++turn;
    const current = await open(mode);
    const want = Object.fromEntries(new FormData(form));
    const text = (want.text || "").trim().toLowerCase();
    const from = want.from ? +want.from : -Infinity, to = want.to ? +want.to : Infinity;
    const found = [];
    if (text) count.textContent = "searching …";
    for (const row of current.index) {
      if (mode === "train" && (row.s < from || row.s > to)) continue;
      if (mode === "train" && want.group && (want.group === "signal") !== (row.g === 1)) continue;
      if (mode === "eval" && want.change && row.ch !== want.change) continue;
      if (want.source && row.src !== want.source) continue;
      let group = null;
      if (text) {
        group = await groupOf(current, row);
        if (mine !== turn) return;
      }
      const hits = row.r.map(([reward, status, stop, fate], index) => {
        if (want.reward === "none" && typeof reward === "number") return false;
        if (want.reward && want.reward !== "none") {
          if (typeof reward !== "number") return false;
          const place = reward === current.best ? "best" : reward === current.worst ? "worst" : "between";
          if (place !== want.reward) return false;
        }
        if (want.status && status !== want.status) return false;
        if (want.stop && stop !== want.stop) return false;
        if (mode === "train" && want.fate && (fate || "trained") !== want.fate) return false;
        return !text || textOf(group, index).includes(text);
      });
      if (hits.some(Boolean)) found.push({ row, hits });
    }
    const key = {
      long: (item) => -Math.max(...item.row.r.map((r) => r[4])),
      short: (item) => Math.min(...item.row.r.map((r) => r[4])),
      best: (item) => -item.row.r.reduce((sum, r) => sum + (r[0] ?? 0), 0) / item.row.r.length,
      worst: (item) => item.row.r.reduce((sum, r) => sum + (r[0] ?? 0), 0) / item.row.r.length,
    }[want.order];
    if (key) found.sort((a, b) => key(a) - key(b));
    if (mine !== turn) return;
    rows = found;
    shown = PAGE;
    const hits = found.reduce((sum, item) => sum + item.hits.filter(Boolean).length, 0);
    const noun = mode === "train" ? "groups" : "questions";
    count.textContent = `${hits.toLocaleString("en")} completions in ${found.length.toLocaleString("en")} of ${current.index.length.toLocaleString("en")} ${noun}`;
    draw(current);
    if (found.length && !found.some((item) => item.row === chosen)) choose(0, false);
    else if (!found.length) { chosen = null; detail.replaceChildren(make("p", "nothing", "Nothing matches these filters.")); }
    else show(found.find((item) => item.row === chosen));
  };

  const draw = (current) => {
    const nodes = rows.slice(0, shown).map((item, index) => {
      const { row, hits } = item;
      const node = make("button", "row");
      node.type = "button";
      node.id = "row-" + index;
      node.setAttribute("role", "option");
      node.tabIndex = -1;
      node.setAttribute("aria-selected", String(row === chosen));
      const where = make("span", "where");
      where.append(
        make("span", "", mode === "train" ? `step ${row.s} · group ${row.n}` : row.id.slice(0, 24)),
        make("span", "", mode === "train" ? (row.g ? "" : "collapsed") : ({ learnt: "wrong → right", lost: "right → wrong", wrong: "still wrong", right: "still right" }[row.ch] || "")),
      );
      const snippet = make("span", "snippet", row.t);
      snippet.dir = "auto";
      const marks = make("span", "marks");
      row.r.slice(0, 64).forEach((r, place) => {
        const mark = make("i", ["mark", grade(r[0], current), hits[place] ? "" : "miss"].join(" "));
        mark.style.setProperty("--fill", Math.round(100 * share(r[0], current)) + "%");
        mark.title = typeof r[0] === "number" ? "reward " + pretty(r[0]) : "no reward: " + r[1];
        marks.append(mark);
      });
      node.append(where, snippet, marks);
      node.addEventListener("click", () => choose(index, false));
      return node;
    });
    if (rows.length > shown) {
      const more = make("button", "more", `show more (${(rows.length - shown).toLocaleString("en")} left)`);
      more.type = "button";
      more.addEventListener("click", () => { shown += PAGE; draw(current); });
      nodes.push(more);
    }
    list.replaceChildren(...nodes);
  };

  const choose = (index, scroll) => {
    if (index < 0 || index >= rows.length) return;
    if (index >= shown) { shown = index + PAGE; draw(modes[mode]); }
    chosen = rows[index].row;
    [...list.children].forEach((node, place) => node.setAttribute("aria-selected", String(place === index)));
    list.setAttribute("aria-activedescendant", "row-" + index);
    if (scroll && list.children[index]) list.children[index].scrollIntoView({ block: "nearest" });
    history.replaceState(null, "", `#${mode === "train" ? "g" : "q"}/${chosen.s}/${chosen.p}`);
    show(rows[index]);
  };

  // ---- one group
  const searched = () => (form.elements.text.value || "").trim();
  const marked = (parent, text) => {
    const word = searched().toLowerCase();
    if (!word) { parent.append(text); return; }
    const low = text.toLowerCase();
    let start = 0, hits = 0;
    for (let at = low.indexOf(word); at >= 0 && hits < 200; at = low.indexOf(word, start), hits += 1) {
      if (low.length !== text.length) break;
      parent.append(text.slice(start, at), make("mark", "", text.slice(at, at + word.length)));
      start = at + word.length;
    }
    parent.append(text.slice(start));
  };
  const clipped = (node, holder) => {
    if (whole) return;
    node.classList.add("clip");
    requestAnimationFrame(() => {
      if (node.scrollHeight <= node.clientHeight + 4) { node.classList.remove("clip"); return; }
      const more = make("button", "open", "show all");
      more.type = "button";
      more.addEventListener("click", () => { node.classList.remove("clip"); more.remove(); });
      holder.insertBefore(more, node.nextSibling);
    });
  };
  const heat = (logprob) => Math.min(0.75, Math.max(0, -logprob) * 0.16).toFixed(3);
  const chance = (logprob) => `log-prob ${logprob.toFixed(2)} nats, probability ${(100 * Math.exp(logprob)).toPrecision(3)} %`;
  const tinted = (parent, part) => {
    let start = 0, sum = 0, tokens = 0; // bytes of one character may be several tokens: they are shown as one
    part.len.forEach((length, index) => {
      sum += part.lp[index];
      tokens += 1;
      const last = index === part.len.length - 1;
      if (!length && !last) return;
      const node = make("span", length ? "tok" : "tok end", length ? part.text.slice(start, start + length) : "end");
      node.style.setProperty("--a", heat(sum));
      node.title = (tokens > 1 ? `${tokens} tokens, together ` : "") + chance(sum);
      parent.append(node);
      start += length;
      sum = tokens = 0;
    });
    parent.append(part.text.slice(start));
  };
  const strip = (part) => {
    const node = make("div", "strip");
    node.setAttribute("aria-label", "log-prob of each token");
    part.lp.slice(0, 4000).forEach((logprob, index) => {
      const cell = make("i");
      cell.style.setProperty("--a", heat(logprob));
      cell.title = `token ${index}: ${chance(logprob)}`;
      node.append(cell);
    });
    return node;
  };
  const chip = (text, kind) => make("span", "chip " + (kind || ""), text);
  const STATUS = { unparseable: "warn", truncated: "warn", timeout: "bad", abstain: "bad", error: "bad" };

  const card = (completion, index, hit, current) => {
    const node = make("section", ["card", grade(completion.reward, current), hit ? "" : "miss"].join(" "));
    const top = make("div", "top");
    const title = mode === "train" ? `#${index}`
      : (completion.when === 0 ? "before training" : `after step ${completion.when}`) + (completion.sampled ? ", sampled" : "");
    const reward = typeof completion.reward !== "number" ? "no reward"
      : mode === "eval" ? (completion.reward ? "✓ right" : "✗ wrong") : "reward " + pretty(completion.reward);
    top.append(make("span", "number", title), make("span", "reward", reward));
    if (completion.advantage !== null) {
      const sign = completion.advantage > 0 ? "+" : completion.advantage < 0 ? "−" : "";
      const advantage = make("span", "advantage", "adv " + sign + pretty(typeof completion.advantage === "number" ? Math.abs(completion.advantage) : completion.advantage));
      advantage.title = "advantage: reward compared with its group";
      top.append(advantage);
    }
    const chips = make("div", "chips");
    for (const [name, status, score] of completion.verdicts)
      chips.append(chip(`${name}: ${status}${typeof score === "number" ? " " + pretty(score) : ""}`, STATUS[status] || (score === 1 ? "good" : "")));
    chips.append(chip(`${completion.tokens.toLocaleString("en")} tokens`));
    chips.append(chip("ended by " + completion.stop.replaceAll("_", " "), completion.stop === "length" ? "warn" : ""));
    if (mode === "train") {
      chips.append(completion.fate ? chip("dropped: " + completion.fate.replaceAll("_", " "), "warn") : chip("trained on"));
      chips.append(chip("policy " + completion.version));
    }
    for (const [name, amount] of Object.entries(completion.shaping || {}))
      if (amount) chips.append(chip(`${name} ${amount > 0 ? "+" : "−"}${pretty(Math.abs(amount))}`, "warn"));
    node.append(top, chips);
    completion.turns.forEach((part, place) => {
      if (place) node.append(make("p", "verdict-line", `turn ${place + 1}, after a reply of ${part.reply} tokens`));
      const text = make("pre", "text completion");
      text.dir = "auto";
      if (tint && part.len) tinted(text, part);
      else if (part.text) marked(text, part.text);
      else text.append(make("span", "faint", "(empty)"));
      node.append(text);
      clipped(text, node);
      if (tint && !part.len && part.lp) node.append(strip(part));
    });
    for (const [name, , , said, parts, flags] of completion.verdicts) {
      if (!said && !flags.length && !Object.keys(parts).length) continue;
      const line = make("p", "verdict-line");
      const words = make("bdi");
      marked(words, said);
      line.append(make("b", "", name + " "), words);
      for (const [part, value] of Object.entries(parts)) line.append(` ${part} ${pretty(value)}`);
      for (const flag of flags) line.append(" ", chip(flag, "warn"));
      node.append(line);
    }
    return node;
  };

  const show = async (item) => {
    const current = modes[mode];
    const group = await groupOf(current, item.row);
    if (item.row !== chosen) return;
    const head = make("div", "head");
    head.append(make("h3", "", mode === "train" ? `Step ${item.row.s}, group ${item.row.n}` : "Held-out question"));
    head.append(make("span", "small", [group.source, group.id].filter(Boolean).join(" · ")));
    const tools = make("div", "tools");
    const toggle = (label, on, action) => {
      const button = make("button", "", label);
      button.type = "button";
      button.setAttribute("aria-pressed", String(on));
      button.addEventListener("click", action);
      tools.append(button);
    };
    if (tint && mode === "train") {
      const key = make("span", "heat-key", "likely ");
      key.append(make("i"), " unlikely");
      tools.append(key);
    }
    if (mode === "train") toggle("Log-probs", tint, () => { tint = !tint; show(item); });
    toggle("Whole texts", whole, () => { whole = !whole; show(item); });
    head.append(tools);
    const nodes = [head];
    for (const [role, content] of group.prompt) {
      const message = make("div", "message");
      if (role) message.append(make("div", "role", role));
      const text = make("pre", "text");
      text.dir = "auto";
      marked(text, content);
      message.append(text);
      nodes.push(message);
      clipped(text, message);
    }
    if (group.answer) {
      const expected = make("p", "expected", "");
      const answer = make("bdi", "", group.answer);
      expected.append(make("span", "faint", "reference answer: "), answer);
      nodes.push(expected);
    }
    const cards = make("div", "cards");
    group.c.forEach((completion, index) => cards.append(card(completion, index, item.hits[index], current)));
    nodes.push(cards);
    detail.replaceChildren(...nodes);
  };

  const enter = async (name) => {
    mode = name;
    for (const tab of tabs) tab.setAttribute("aria-selected", String(tab.dataset.mode === name));
    for (const label of form.querySelectorAll("[data-for]")) label.hidden = label.dataset.for !== name;
    const current = await open(name);
    const column = (place) => new Set(current.index.flatMap((row) => row.r.map((r) => r[place])));
    fill("status", column(1));
    fill("stop", column(2));
    if (name === "train") fill("fate", column(3));
    fill("source", new Set(current.index.map((row) => row.src)));
    chosen = null;
    await filter();
  };

  const move = (by) => choose(rows.findIndex((item) => item.row === chosen) + by, true);
  let pause = 0;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(filter, 180); });
  form.addEventListener("reset", () => setTimeout(filter, 0));
  for (const tab of tabs) tab.addEventListener("click", () => enter(tab.dataset.mode));
  list.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "Escape" && typing) { document.activeElement.blur(); return; }
    if (typing) return;
    const item = rows.find((each) => each.row === chosen);
    const actions = {
      j: () => move(1), k: () => move(-1),
      "/": () => { $("browser").scrollIntoView(); form.elements.text.focus(); },
      t: () => { if (item) { tint = !tint; show(item); } },
      e: () => { if (item) { whole = !whole; show(item); } },
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  });

  const start = async () => {
    if (typeof DecompressionStream === "undefined") {
      count.textContent = "This browser cannot unpack the rollouts; any browser since 2023 can.";
      return;
    }
    const link = /^#([gq])\/(\d+)\/(\d+)$/.exec(location.hash);
    const wanted = link && (link[1] === "g" ? "train" : "eval");
    await enter(wanted && payload[wanted].blobs.length ? wanted : mode);
    if (!link) return;
    const index = rows.findIndex((item) => item.row.s === +link[2] && item.row.p === +link[3]);
    if (index >= 0) { choose(index, true); $("browser").scrollIntoView(); }
  };
  start();
})();

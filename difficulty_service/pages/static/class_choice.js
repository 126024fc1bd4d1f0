// A box for the name of a class that lists, while one types, the classes whose names contain the text.

const MOST_LISTED = 50;

// The names that contain a text, whatever their case: the same name first, in its own case before any
// other, then those that begin with it, then those of which a word does.
function matchingNames(names, text) {
  const typed = text.trim(), wanted = typed.toLowerCase();
  const rank = (name) => {
    if (name === wanted) return 0;
    if (name.startsWith(wanted)) return 1;
    return /[\s_.,/-]/.test(name[name.indexOf(wanted) - 1]) ? 2 : 3;
  };
  return names.map((name) => [name, name.toLowerCase()])
    .filter(([, lower]) => lower.includes(wanted))
    .sort(([name, one], [next, other]) => rank(one) - rank(other) || (next === typed) - (name === typed))
    .map(([name]) => name);
}

export class ClassChoice {
  // Calls `onChoose` with a name; `names` gives all of them, perhaps later. Other text than a name
  // is refused unless it `isFree`.
  constructor(input, names, onChoose, { isFree = false } = {}) {
    Object.assign(this, { input, names: [], onChoose, isFree, matches: [], active: -1 });
    this.list = document.createElement("ul");
    this.list.id = `${input.id}-options`;
    this.list.className = "options";
    this.list.hidden = true;
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Classes");
    input.removeAttribute("list");  // the browser's own suggestions, where scripts do not run
    for (const [name, value] of Object.entries({
      role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": this.list.id,
    })) input.setAttribute(name, value);
    const box = document.createElement("span");
    box.className = "choice";
    input.replaceWith(box);
    box.append(input, this.list);
    Promise.resolve(names()).then((all) => {
      this.names = all;
      if (!this.list.hidden) this.suggest();
    });
    input.addEventListener("input", () => { input.setCustomValidity(""); this.suggest(); });
    input.addEventListener("blur", () => this.close());
    input.addEventListener("keydown", (event) => this.press(event));
    // The box keeps the focus while the mouse is down on a name.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.choose(this.matches[[...this.list.children].indexOf(option)]);
    });
    if (!isFree) input.form?.addEventListener("submit", (event) => { event.preventDefault(); this.take(); });
  }

  press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      if (this.list.hidden) this.suggest();
      else this.activate((this.active + step + this.matches.length) % this.matches.length);
    } else if (event.key === "Enter" && !(this.isFree && this.list.hidden)) this.take();
    else if (event.key === "Escape" && !this.list.hidden) this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Lists what matches; Enter takes the first one.
  suggest() {
    this.matches = matchingNames(this.names, this.input.value).slice(0, MOST_LISTED);
    this.list.replaceChildren(...this.matches.map((name, place) => {
      const option = document.createElement("li"), text = document.createElement("bdi");
      option.id = `${this.list.id}-${place}`;
      option.setAttribute("role", "option");
      text.textContent = name;
      option.append(text);
      return option;
    }));
    // There is nothing to choose once the only class is named.
    this.list.hidden = !this.matches.length || (this.matches.length === 1 && this.matches[0] === this.input.value);
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.activate(this.matches.length ? 0 : -1);
  }

  activate(place) {
    this.active = place;
    [...this.list.children].forEach((option, each) => option.setAttribute("aria-selected", String(each === place)));
    const option = this.list.children[place];
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.activate(-1);
  }

  // The class that the text stands for; null where no class has it in its name.
  get best() {
    if (!this.input.value.trim()) return null;
    return this.matches[this.active] ?? matchingNames(this.names, this.input.value)[0] ?? null;
  }

  take() {
    const name = this.list.hidden ? this.best : this.matches[this.active];
    const typed = this.input.value.trim();
    if (name) this.choose(name);
    else if (typed && "newClasses" in this.input.dataset) {
      if (!this.names.includes(typed)) this.names = [...this.names, typed];
      this.choose(typed);
    } else this.refuse();
  }

  refuse() {
    this.input.setCustomValidity("No class has this in its name.");
    this.input.reportValidity();
  }

  choose(name) {
    this.input.value = name;
    this.input.setCustomValidity("");
    this.close();
    this.onChoose(name);
  }
}

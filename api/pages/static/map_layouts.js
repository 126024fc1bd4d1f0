// The layouts of the map: two directions at once, and the t-SNE once the service has made it.

import { MapPoints } from "./report/map_data.js";
import { byId } from "./report/page.js";

const SECONDS_BETWEEN = 1, SECONDS_AFTER_MISS = 5, MOST_MISSES = 12;
const UNREACHABLE = "The points of the map cannot be fetched. Load the page again, or sign in again.";

const wait = (seconds) => new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });

// The points; how far they are and perhaps why there will be none; or nothing without an answer.
async function fetchPoints(address) {
  const answer = await fetch(address).catch(() => null);
  if (!answer?.ok) return {};
  if (answer.status === 202) return answer.json();
  return { points: MapPoints.fromBytes(await answer.arrayBuffer()) };
}

export class Layouts {
  // `say` shows a sentence about the map, or nothing. `isBusy` tells whether another layout would
  // take something away from the person; `onChange` is called after a change of the layout.
  constructor(address, tsne, say) {
    Object.assign(this, { address, tsne, say, known: {}, current: tsne === "ready" ? "tsne" : "plane", isBusy: () => false, onChange: () => {} });
  }

  // The points to begin with; null where there are none.
  async first() {
    const { points } = await fetchPoints(`${this.address}/${this.current === "tsne" ? "tsne" : "points"}`);
    if (!points && this.current === "tsne") {  // deleted meanwhile
      Object.assign(this, { current: "plane", tsne: "" });
      return this.first();
    }
    if (!points) this.say(UNREACHABLE);
    else this.known[this.current] = points;
    return points ?? null;
  }

  // Offers both layouts, and the better one of itself once it is there.
  async start(map) {
    this.map = map;
    for (const input of this.inputs) {
      input.addEventListener("change", () => this.choose(input.value));
    }
    if (this.current === "tsne") this.offer();
    else if (this.tsne) await this.waitForTsne();
  }

  get inputs() { return document.querySelectorAll("input[name=layout]"); }

  offer() {
    byId("layouts").hidden = false;
    for (const input of this.inputs) input.checked = input.value === this.current;
  }

  async waitForTsne() {
    for (let misses = 0; ;) {
      const { points, share, failure } = await fetchPoints(`${this.address}/tsne`);
      if (failure) {
        this.say(`There is no t-SNE: ${failure}. The map shows two directions.`);
        return;
      }
      if (points) {
        this.known.tsne = points;
        break;
      }
      if (share === undefined) {
        misses += 1;
        if (misses > MOST_MISSES) {
          this.say("The service does not answer any more. Load the page again for a map that separates the classes better.");
          return;
        }
        await wait(SECONDS_AFTER_MISS);
        continue;
      }
      misses = 0;
      this.say(`A map that separates the classes better is being made: t-SNE ${Math.floor(100 * share)} %`);
      await wait(SECONDS_BETWEEN);
    }
    this.offer();
    if (this.isBusy()) this.say("The better map is there; “t-SNE” shows it, and clears the lasso.");
    else await this.choose("tsne");
  }

  async choose(layout) {
    if (!this.known[layout]) {
      const { points, failure } = await fetchPoints(`${this.address}/${layout === "tsne" ? "tsne" : "points"}`);
      if (!points) {
        this.say(failure ?? UNREACHABLE);
        this.offer();
        return;
      }
      this.known[layout] = points;
    }
    this.current = layout;
    this.say("");
    this.offer();
    this.map.setPoints(this.known[layout]);
    this.map.show();
    this.onChange();
  }
}

// Charts of the last hour: what the controller has kept, and then what this page sees. Samples stay
// while the page is open, also when its user looks at another deployment.

import { call } from './api.js';
import { card, count, el, millis, num } from './dom.js';

const span = 3600; // seconds
const gap = 30; // seconds without a sample, after which a line is interrupted
const samples = new Map(); // by deployment: columns of time and of each chart

// heldBack is the share of shards whose bulk work is held back now, in percent.
const heldBack = (held, ring) => ring > 0 ? Math.round(held * 100 / ring) : 0;

// The charts. of reads a value of a deployment, kept of one of the controller's samples; null: not known.
const kinds = [
  { title: 'Copy rate', unit: (v) => count(v) + '/s', of: (d) => num(d.progress.rate), kept: (s) => num(s.rate) },
  { title: 'Lag', unit: millis, of: (d) => d.progress.maxLagMillis === undefined ? null : num(d.progress.maxLagMillis),
    kept: (s) => s.maxLagMillis === undefined ? null : num(s.maxLagMillis) },
  { title: 'Held back', unit: (v) => `${Math.round(v)} % of shards`, of: (d) => heldBack((d.progress.shards || []).filter((s) => s.pace).length, d.ringSize),
    kept: (s, ring) => heldBack(s.heldBack || 0, ring) },
];

// clock is a time of the day, as the user's clock has it.
const clock = (at) => new Date(at * 1000).toTimeString().slice(0, 8);

// minutes is the time that an axis shows, a minute at least, also before the first sample. With one
// sample alone uPlot proposes a day.
const minutes = (_, from, to) => {
  const end = Math.min(to ?? Infinity, Date.now() / 1000);
  return [Math.min(from ?? end, end - 60), end];
};

export class Charts {
  constructor(name, signal) {
    this.name = name;
    this.signal = signal;
    this.fresh = !samples.has(name);
    if (this.fresh) samples.set(name, [[], ...kinds.map(() => [])]);
    this.data = samples.get(name);
    this.now = kinds.map(() => el('span', {}));
    this.boxes = kinds.map((k) => el('div', { class: 'chart', role: 'img', 'aria-label': `${k.title}, not known yet` }));
    this.held = el('p', { class: 'quiet' });
    this.node = el('section', { class: 'card', id: 'charts' }, card('Last hour',
      el('div', { class: 'charts' }, kinds.map((k, i) => el('div', {}, el('h3', {}, k.title + ' ', this.now[i]), this.boxes[i]))), this.held));
    this.node.hidden = true;
    // Messages come when something changes. A steady value is a value, too.
    const timer = setInterval(() => this.last && this.sample(this.last), 1000);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const again = () => this.draw();
    dark.addEventListener('change', again);
    const sized = new ResizeObserver(() => this.plots?.forEach((p, i) => p.setSize(this.size(this.boxes[i]))));
    sized.observe(this.boxes[0]);
    signal.addEventListener('abort', () => {
      clearInterval(timer);
      dark.removeEventListener('change', again);
      sized.disconnect();
      this.plots?.forEach((p) => p.destroy());
    }, { once: true });
  }

  add(d) {
    this.last = d;
    this.node.hidden = !d.progress;
    if (this.node.hidden) return;
    const held = d.pace?.now || [];
    this.held.textContent = held.length > 0 ? 'Throttled now: ' + held.join(', ') : '';
    if (!this.plots) this.draw();
    if (this.fresh) this.before(d.ringSize);
  }

  // before puts what the controller has kept in front of what this page has seen. An older controller
  // keeps nothing.
  async before(ring) {
    this.fresh = false;
    let kept;
    try {
      kept = (await call('ListSamples', { name: this.name })).samples || [];
    } catch {
      return;
    }
    const first = this.data[0][0] ?? Infinity;
    const past = this.data.map(() => []);
    for (const s of kept) {
      const at = num(s.at);
      if (at >= first) break;
      // The controller had nothing to say, or another one had the word.
      if (at - past[0].at(-1) > gap) past.forEach((column, i) => column.push(i ? null : at - 1));
      past[0].push(at);
      kinds.forEach((k, i) => past[i + 1].push(k.kept(s, ring)));
    }
    this.data.forEach((column, i) => column.unshift(...past[i]));
    if (!this.signal.aborted) this.show();
  }

  sample(d) {
    const now = Math.floor(Date.now() / 1000);
    const at = this.data[0];
    if (at.at(-1) >= now || this.node.hidden) return;
    // While the controller does not answer, the chart has a gap instead of old values.
    const known = d.progress && document.getElementById('live').dataset.state === 'live';
    at.push(now);
    kinds.forEach((k, i) => this.data[i + 1].push(known ? k.of(d) : null));
    while (at[0] < now - span) for (const column of this.data) column.shift();
    this.show();
  }

  show() {
    kinds.forEach((k, i) => {
      const values = this.data[i + 1];
      const now = values.at(-1) ?? null;
      this.now[i].textContent = now === null ? 'not known' : k.unit(now);
      this.boxes[i].setAttribute('aria-label', `${k.title}, now ${this.now[i].textContent}, at most ${k.unit(values.reduce((most, v) => Math.max(most, v), 0))}`);
      this.plots?.[i].setData([this.data[0], values]);
    });
  }

  size(box) { return { width: Math.max(200, box.clientWidth), height: 120 }; }

  draw() {
    this.plots?.forEach((p) => p.destroy());
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color('--quiet'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line') } };
    this.plots = kinds.map((k, i) => new uPlot({
      ...this.size(this.boxes[i]), legend: { show: false }, cursor: { show: false },
      scales: { x: { range: minutes }, y: { range: (_, min, max) => [0, Math.max(1, max * 1.1)] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 62, values: (_, ticks) => ticks.map((v) => k.unit(v).replace(' of shards', '')) }],
      series: [{}, { stroke: color('--accent'), fill: color('--accent-fill'), width: 2, points: { show: false } }],
    }, [this.data[0], this.data[i + 1]], this.boxes[i]));
  }
}

// Charts of the last hour, as far as the page has seen it. Samples stay while the page is open, also
// when its user looks at another deployment.

import { card, count, el, millis, num } from './dom.js';

const span = 3600; // seconds
const samples = new Map(); // by deployment: columns of time, rate and lag

// clock is a time of the day, as the user's clock has it.
const clock = (at) => new Date(at * 1000).toTimeString().slice(0, 8);

// minutes is the time that an axis shows, a minute at least, also before the first sample.
const minutes = (_, from, to) => {
  const end = to ?? Date.now() / 1000;
  return [Math.min(from ?? end, end - 60), end];
};

export class Charts {
  constructor(name, signal) {
    if (!samples.has(name)) samples.set(name, [[], [], []]);
    this.data = samples.get(name);
    this.rateNow = el('span', {});
    this.lagNow = el('span', {});
    this.rateBox = el('div', { class: 'chart', role: 'img', 'aria-label': 'copy rate, not known yet' });
    this.lagBox = el('div', { class: 'chart', role: 'img', 'aria-label': 'lag, not known yet' });
    this.held = el('p', { class: 'quiet' });
    this.node = el('section', { class: 'card', id: 'charts' }, card('Last hour, as far as this page has seen it',
      el('div', { class: 'charts' }, el('div', {}, el('h3', {}, 'Copy rate ', this.rateNow), this.rateBox), el('div', {}, el('h3', {}, 'Lag ', this.lagNow), this.lagBox)), this.held));
    this.node.hidden = true;
    this.signal = signal;
    // Messages come when something changes. A steady value is a value, too.
    const timer = setInterval(() => this.last && this.sample(this.last), 1000);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const again = () => this.draw();
    dark.addEventListener('change', again);
    const sized = new ResizeObserver(() => this.plots?.forEach((p, i) => p.setSize(this.size([this.rateBox, this.lagBox][i]))));
    sized.observe(this.rateBox);
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
  }

  sample(d) {
    const now = Math.floor(Date.now() / 1000);
    const [at, rate, lag] = this.data;
    // While the controller does not answer, the chart has a gap instead of old values.
    const known = d.progress && document.getElementById('live').dataset.state === 'live';
    if (at.at(-1) === now || this.node.hidden) return;
    at.push(now);
    rate.push(known ? num(d.progress.rate) : null);
    lag.push(known && d.progress.maxLagMillis !== undefined ? num(d.progress.maxLagMillis) : null);
    while (at[0] < now - span) for (const column of this.data) column.shift();
    this.rateNow.textContent = known ? count(d.progress.rate) + '/s' : 'not known';
    this.lagNow.textContent = lag.at(-1) === null ? 'not known' : millis(lag.at(-1));
    this.rateBox.setAttribute('aria-label', `copy rate, now ${this.rateNow.textContent}, at most ${count(Math.max(...rate))} records a second`);
    this.lagBox.setAttribute('aria-label', `lag, now ${this.lagNow.textContent}, at most ${millis(Math.max(...lag))}`);
    this.plots?.[0].setData([at, rate]);
    this.plots?.[1].setData([at, lag]);
  }

  size(box) { return { width: Math.max(200, box.clientWidth), height: 120 }; }

  draw() {
    this.plots?.forEach((p) => p.destroy());
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color('--quiet'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line') } };
    const plot = (box, data, unit) => new uPlot({
      ...this.size(box), legend: { show: false }, cursor: { show: false },
      scales: { x: { range: minutes }, y: { range: (_, min, max) => [0, Math.max(1, max * 1.1)] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 62, values: (_, ticks) => ticks.map(unit) }],
      series: [{}, { stroke: color('--accent'), fill: color('--accent-fill'), width: 2, points: { show: false } }],
    }, data, box);
    const [at, rate, lag] = this.data;
    this.plots = [plot(this.rateBox, [at, rate], (v) => count(v) + '/s'), plot(this.lagBox, [at, lag], (v) => millis(v))];
  }
}

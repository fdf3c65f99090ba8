// The ring of shards: a drawing, a sentence, and a table.

import { card, count, el, millis, num, svg, table } from './dom.js';

const order = ['stopped', 'waiting', 'copying', 'comparing', 'following', 'draining', 'drained', 'ready', 'switched'];
const mostArcs = 256; // more would be thinner than a pixel
const mostRows = 64;

export function shards(d) {
  const all = d.progress?.shards || [];
  if (all.length === 0) return [];
  const counts = new Map();
  for (const s of all) counts.set(s.state, (counts.get(s.state) || 0) + 1);
  const sentence = order.filter((state) => counts.has(state)).map((state) => `${counts.get(state)} ${state}`).join(', ');
  // The shards that need attention come first where not all fit.
  const rows = all.length <= mostRows ? all : all.toSorted((a, b) => order.indexOf(a.state) - order.indexOf(b.state)).slice(0, mostRows);
  return card('Shards',
    el('div', { class: 'ring' }, all.length <= mostArcs && ring(all, sentence),
      el('ul', { class: 'legend' }, order.filter((state) => counts.has(state)).map((state) =>
        el('li', {}, el('span', { class: 'mark s-' + state }), `${counts.get(state)} ${state}`)))),
    table('Shards', ['Shard', 'State', 'Copied', 'Lag', 'Rate', 'Owner', 'Waits for'], rows.map((s) => [
      String(s.shard), [el('span', { class: 'mark s-' + s.state }), s.state], done(s), s.lagMillis === undefined ? 'not known' : millis(s.lagMillis),
      s.rate >= 1 ? count(s.rate) + '/s' : '-', s.owner || 'none',
      [s.waitsFor || '', s.pace && ` (${s.pace})`, s.lastError && el('span', { class: 'error' }, ' ' + s.lastError)],
    ])),
    rows.length < all.length && el('p', { class: 'quiet' }, `${all.length - rows.length} more shards; the command line lists all.`));
}

const done = (s) => s.state === 'waiting' ? '-' : num(s.total) ? [el('progress', { max: num(s.total), value: Math.min(num(s.copied), num(s.total)), 'aria-label': `shard ${s.shard} copied` }), ' ', count(s.copied)] : count(s.copied);

function ring(all, sentence) {
  const size = 120;
  const r = 50;
  const gap = all.length > 1 ? Math.min(0.04, 1 / all.length) : 0;
  const point = (turn) => `${(size / 2 + r * Math.sin(2 * Math.PI * turn)).toFixed(2)} ${(size / 2 - r * Math.cos(2 * Math.PI * turn)).toFixed(2)}`;
  return svg('svg', { viewBox: `0 0 ${size} ${size}`, width: size, height: size, role: 'img', 'aria-label': `${all.length} shards: ${sentence}` },
    all.map((s, i) => {
      const from = (i + gap / 2) / all.length;
      const to = (i + 1 - gap / 2 - (all.length === 1 ? 0.001 : 0)) / all.length;
      return svg('path', { class: 'arc s-' + s.state, d: `M ${point(from)} A ${r} ${r} 0 ${to - from > 0.5 ? 1 : 0} 1 ${point(to)}` },
        svg('title', {}, `shard ${s.shard}: ${s.state}`));
    }));
}

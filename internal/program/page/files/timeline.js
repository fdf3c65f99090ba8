// The phases of an upgrade in their order, with the time that each took.

import { between, el, time } from './dom.js';

const phases = [
  ['INITIAL_SYNCING', 'Copy', 'shards copy, compare and follow'],
  ['READY', 'Ready', 'every shard follows closely'],
  ['HOLD', 'Hold', 'new writes wait'],
  ['FENCE', 'Fence', 'the database refuses late writes'],
  ['DRAIN', 'Drain', 'the remaining changes are applied'],
  ['SEAL_TARGET', 'Seal new', 'names of the new version change again'],
  ['SEAL_SOURCE', 'Seal old', 'names of the old version change again'],
  ['DONE', 'Switched', 'the new version is served'],
];

// timeline shows the upgrade that runs, or else the latest one.
export function timeline(d) {
  const u = d.upgradeState;
  const entry = (d.history || []).findLast((h) => h.phases?.length > 0 && (!u || h.id === u.id));
  if (!entry) return el('p', { class: 'quiet' }, u ? 'The upgrade begins.' : 'No upgrade has run yet.');
  // A phase may have come several times, when the switch was tried again. The latest counts.
  const at = new Map();
  entry.phases.forEach((p, i) => at.set(p.phase, { at: p.at, until: entry.phases[i + 1]?.at || entry.ended, last: i === entry.phases.length - 1 }));
  const aborted = at.has('ABORT') || !u && entry.outcome && !/^(done|switched|ok)/i.test(entry.outcome);
  if (!u && !aborted) at.set('DONE', { at: entry.ended });
  return [
    !u && el('p', { class: 'quiet' }, `The latest: ${entry.from} → ${entry.to}, ${time(entry.at)} UTC, ${entry.outcome || 'running'}`),
    el('ol', { class: 'timeline' }, phases.map(([id, name, help]) => {
      const seen = at.get(id);
      const state = !seen ? 'later' : u && seen.last ? 'now' : 'done';
      const took = seen && id !== 'DONE' ? between(seen.at, seen.until) : '';
      return el('li', { class: state, title: help, 'aria-current': state === 'now' && 'step' }, el('span', { class: 'dot' }), name,
        el('small', {}, took || (state === 'now' ? 'now' : '')), el('span', { class: 'unseen' }, { later: ' not yet', now: ' runs', done: ' done' }[state]));
    }), at.has('ABORT') && el('li', { class: 'now' }, el('span', { class: 'dot' }), 'Abort', el('small', {}, '')))];
}

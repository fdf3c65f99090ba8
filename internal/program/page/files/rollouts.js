// Rollouts: one upgrade over many deployments, wave by wave.

import { call } from './api.js';
import { open } from './dialog.js';
import { Part, announce, card, el, facts, millis, num, table, time } from './dom.js';
import { poll } from './follow.js';
import { short } from './words.js';

const every = 2000; // milliseconds between two looks

const level = { DONE: 'good', PAUSED: 'warn', ROLLING_BACK: 'warn', STOPPED: 'bad', ROLLED_BACK: 'bad' };
const spoken = (state) => state.toLowerCase().replace('_', ' ');
const badge = (r) => el('span', { class: 'badge ' + (level[r.state] || '') }, spoken(r.state));
const standing = (r) => `wave ${r.wave} of ${r.waves.length}` + (r.state === 'RUNNING' ? `, ${r.step.toLowerCase()}` : '');
const waits = (r) => [r.reason, r.waitsFor && 'waits for ' + r.waitsFor].filter(Boolean).join('; ');

// rollouts returns all of them. Controllers of older builds know none.
export async function rollouts() {
  try {
    return await call('ListRollouts', {});
  } catch (e) {
    if (e.code === 'unimplemented' || e.code === 'not_found') return {};
    throw e;
  }
}

// listed shows all rollouts in a part of the overview.
export function listed(part, user, all) {
  part.show(all, () => card('Rollouts',
    all.rollouts?.length > 0
      ? table('Rollouts', ['Rollout', 'Version', 'State', 'Wave', 'Reason'], all.rollouts.map((r) => [
        el('a', { href: '#/r/' + encodeURIComponent(r.name) }, r.name), r.targetVersion, badge(r), standing(r), waits(r)]))
      : el('p', { class: 'quiet' }, 'None. A rollout upgrades many deployments, a few first.'),
    (all.unreadable || []).map((u) => el('p', { class: 'error' }, u)),
    user.operator && el('button', { type: 'button', id: 'verb-rollout', onclick: () => open(begin) }, 'Begin a rollout …')));
}

// waved reads waves as the command line does: a deployment on each line, an empty line between two waves.
function waved(text) {
  return text.split(/\n\s*\n/).map((wave) => wave.split('\n').map((line) => line.trim()).filter((line) => line && !line.startsWith('#')))
    .filter((names) => names.length > 0).map((names) => ({ deployments: names.map((name) => ({ name })) }));
}

const ms = (text) => text === '' ? undefined : String(Math.round(Number(text) * 1000));

const begin = {
  title: 'Begin a rollout …', act: 'Begin the rollout', help: 'Upgrade many deployments in waves. The next wave begins when the one before it has switched and nothing is known against it.',
  fields: [
    { name: 'name', label: 'Name', help: 'lower-case letters, digits and dashes', required: true },
    { name: 'target', label: 'Version', required: true },
    { name: 'waves', label: 'Deployments', help: 'one on each line, with an empty line between two waves', type: 'textarea', required: true },
    { name: 'hold', label: 'Time that a wave must be well, in seconds', help: 'empty: 30', type: 'number', min: 0 },
    { name: 'limit', label: 'A wave fails if that has not come after, in seconds', help: 'empty: 600', type: 'number', min: 0 },
    { name: 'pause', label: 'Pause between two waves, in seconds', type: 'number', min: 0 },
    { name: 'checks', label: 'Checks', help: 'names from the controllers’ configuration, separated by spaces' },
    { name: 'stopOnly', label: 'Leave a failed wave as it is, instead of rolling it back', type: 'checkbox' },
  ],
  calls: (v) => [['BeginRollout', {
    name: v.name, targetVersion: v.target, waves: waved(v.waves),
    policy: { holdMs: ms(v.hold), gateLimitMs: ms(v.limit) || '0', pauseMs: ms(v.pause) || '0', checks: v.checks.split(/[\s,]+/).filter(Boolean), stopOnly: v.stopOnly },
  }]],
};

const reason = { name: 'reason', label: 'Reason', help: 'for the history' };
const change = (r, verb, more) => [['ChangeRollout', { name: r.name, verb, ...more }]];

const verbs = {
  pause: (r) => ({ title: 'Pause …', act: 'Pause the rollout', help: 'No deployment begins and no gate passes. Running upgrades go on.', fields: [reason], calls: (v) => change(r, 'PAUSE', { reason: v.reason }) }),
  resume: (r) => ({ title: 'Resume', act: 'Resume the rollout', calls: () => change(r, 'RESUME') }),
  stop: (r) => ({ title: 'Stop …', act: 'Stop the rollout', danger: true, help: 'End the rollout where it is. Running upgrades go on.', fields: [reason], calls: (v) => change(r, 'STOP', { reason: v.reason }) }),
  back: (r) => ({
    title: 'Roll back …', act: 'Roll back', danger: true, help: 'Return the deployments that the rollout has upgraded.',
    fields: [{ name: 'wave', label: 'From wave', help: 'this one and all later ones', type: 'number', min: 1, max: r.wave, value: r.wave, required: true }, reason],
    calls: (v) => change(r, 'ROLLBACK', { fromWave: Number(v.wave), reason: v.reason }),
  }),
  forget: (r) => ({
    title: 'Forget', act: 'Delete the record', danger: true, help: 'Delete the record of the rollout. It changes no deployment.',
    calls: () => [['ForgetRollout', { name: r.name }]], after: () => { location.hash = '#/'; },
  }),
};

const possible = (r) => ({
  RUNNING: ['pause', 'stop', 'back'], PAUSED: ['resume', 'stop', 'back'], STOPPED: ['resume', 'back', 'forget'],
  ROLLING_BACK: ['stop'], ROLLED_BACK: ['resume', 'forget'], DONE: ['back', 'forget'],
})[r.state] || [];

// rollout is the view of one.
export function rollout(main, name, user, signal, fail) {
  document.title = name + ' - dbcontroller';
  const part = (attributes) => new Part('section', { class: 'card', ...attributes });
  const parts = { head: new Part('div', { class: 'head' }), verbs: new Part('div', { class: 'verbs', role: 'group', 'aria-label': 'Verbs' }), facts: part(), waves: part({ id: 'waves' }), history: part({ id: 'history' }) };
  main.replaceChildren(el('p', {}, el('a', { href: '#/' }, '← All deployments')), ...Object.values(parts).map((p) => p.node));
  poll(() => call('GetRollout', { name }), every, signal, (r) => {
    parts.head.show([r.name, r.state, r.wave, r.step, r.targetVersion], () => [el('h1', {}, 'Rollout ' + r.name), el('p', {}, badge(r), ` to ${r.targetVersion}, ${standing(r)}`)]);
    parts.verbs.show([user.operator, r.state, r.wave], () => user.operator && possible(r).map((verb) => {
      const it = verbs[verb](r);
      return el('button', { type: 'button', id: 'verb-' + verb, class: it.danger ? 'danger' : null, onclick: () => open(it) }, it.title);
    }));
    parts.facts.show([r.reason, r.waitsFor, r.policy, r.began], () => card('How it goes on', facts([
      ['Reason', r.reason], ['Waits for', r.waitsFor], ['Begun', `${time(r.began)} UTC by ${r.beganBy}`], ['Gate', gate(r.policy || {})],
      ['Pause', num(r.policy?.pauseMs) && millis(r.policy.pauseMs) + ' between two waves'],
      ['A failed wave', r.policy?.stopOnly ? 'stays as it is' : 'is rolled back'],
    ])));
    parts.waves.show(r.waves, () => card('Waves', r.waves.map((w, i) => [el('h3', {}, `Wave ${i + 1}`), table(`Wave ${i + 1}`, ['Deployment', 'Order', 'Result', 'Detail'], w.deployments.map((d) => [
      el('a', { href: '#/d/' + encodeURIComponent(d.name) }, short(d.name)), d.order || '-', d.result || '-', d.detail || '']))])));
    parts.history.show(r.history, () => card('History, the latest first', table('History', ['At (UTC)', 'By', 'What'], [...r.history || []].reverse().map((e) => [time(e.at), e.by || 'a controller', e.what]))));
    announce(`Rollout ${r.name}: ${spoken(r.state)}, ${standing(r)}`);
  }, fail);
}

function gate(p) {
  const parts = [`nothing is known against a wave for ${millis(p.holdMs ?? 30000)}`];
  if (p.checks?.length) parts.push('checks: ' + p.checks.join(', '));
  if (num(p.maxLagMs)) parts.push('lag at most ' + millis(p.maxLagMs));
  if (num(p.gateLimitMs)) parts.push('within ' + millis(p.gateLimitMs));
  return parts.join('; ');
}

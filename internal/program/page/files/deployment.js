// One deployment: everything that is known of it, and the verbs that change it.

import { Part, announce, card, count, el, facts, millis, num, time } from './dom.js';
import { watch } from './follow.js';
import { Charts } from './charts.js';
import { Parked } from './parked.js';
import { shards } from './shards.js';
import { timeline } from './timeline.js';
import { buttons, offered, resolver } from './verbs.js';
import { blockers, concerns, copied, encryption, lag, pace, phase, policy, rollbackSafe, share, short } from './words.js';
import { Sizes, history, servers, versions } from './tables.js';

export function deployment(main, name, user, signal, fail) {
  document.title = short(name) + ' - dbcontroller';
  const part = (attributes) => new Part('section', { class: 'card', ...attributes });
  const parts = {
    head: new Part('div', { class: 'head' }), concerns: new Part('ul', { class: 'concerns', 'aria-label': 'What you must know' }),
    verbs: new Part('div', { class: 'verbs', role: 'group', 'aria-label': 'Verbs' }),
    upgrade: part({ id: 'upgrade' }), readiness: part({ id: 'readiness' }), rollback: part({ id: 'rollback' }),
    shards: part({ id: 'shards' }), versions: part({ id: 'versions' }), servers: part({ id: 'servers' }), history: part({ id: 'history' }),
  };
  const charts = new Charts(name, signal);
  const sizes = new Sizes(name, signal, () => last && show(last));
  const parked = new Parked(name, user, () => last);
  let last;
  const show = (d) => {
    last = d;
    head(parts, d, user, () => last);
    upgrade(parts, d);
    parts.readiness.show([d.readiness, d.upgradeState?.state, d.upgradeState?.policy, d.currentVersion], () => readiness(d, user, () => last));
    parts.rollback.show([d.rollbackSafe, d.lastSwitch, d.reverseSync], () => rollback(d));
    parts.shards.show([d.progress?.shards, d.upgradeState?.readyShards, d.ringSize], () => shards(d));
    sizes.ask(d);
    parts.versions.show([d.namespaces, d.currentVersion, d.kept, d.retired, d.retiring, sizes.known], () => versions(d, encryption, sizes));
    parts.servers.show([d.servers, d.controllers], () => servers(d));
    parts.history.show([d.history, d.historyDropped], () => history(d));
    charts.add(d);
    parked.update(d);
  };
  main.replaceChildren(el('p', {}, el('a', { href: '#/' }, '← All deployments'), ' ', el('a', { href: '#/lens/' + encodeURIComponent(name) }, 'Try a record')), parts.head.node, parts.concerns.node, parts.verbs.node,
    el('div', { class: 'grid' }, parts.upgrade.node, parts.readiness.node, charts.node, parts.shards.node, parked.node,
      parts.rollback.node, parts.servers.node, parts.versions.node, parts.history.node));
  watch(name, signal, show, fail);
}

function head(parts, d, user, latest) {
  const u = d.upgradeState;
  parts.head.show([d.name, d.region, d.currentVersion, u && [u.targetVersion, phase(u)], d.epoch], () => [
    el('h1', {}, short(d.name)),
    el('p', {}, el('span', { class: 'badge version' }, d.currentVersion), ' is current, epoch ', d.epoch, '. ',
      d.region ? `Of region ${d.region}. ` : '',
      u ? ['Upgrade to ', el('span', { class: 'badge version' }, u.targetVersion), ': ', el('span', { class: 'badge', id: 'phase' }, phase(u))] : 'No upgrade runs.'),
  ]);
  const all = concerns(d, true);
  parts.concerns.show(all, () => all.map((c) => el('li', { class: c.level }, c.text)));
  const offers = offered(d);
  parts.verbs.show([user.operator, offers], () => user.operator ? buttons(offers, latest) : el('p', { class: 'quiet' }, `${user.identity} may look at everything. Changes need the role operator.`));
}

// progressStep rounds the share for screen readers, so that they are not told each percent.
const progressStep = 10;

function upgrade(parts, d) {
  const u = d.upgradeState;
  const p = d.progress;
  if (u) {
    const done = p && num(p.total) && u.state !== 'SWITCHING' ? `, ${Math.floor(share(p) / progressStep) * progressStep} percent copied` : '';
    announce(`Upgrade to ${u.targetVersion}: ${phase(u)}, ${u.readyShards.length} of ${d.ringSize} shards ready${done}`);
  } else {
    announce(`${d.currentVersion} is current, no upgrade runs`);
  }
  parts.upgrade.show([u, d.history?.at(-1), d.lastSwitch, p && [p.copied, p.total, p.etaSeconds, p.maxLagMillis, p.verified, p.mismatched, p.rate, p.reportingShards],
    d.pace, d.update, d.following, d.replaced, d.availableUpgrades], () => card(u ? `Upgrade ${d.currentVersion} → ${u.targetVersion}` : 'Upgrade',
    timeline(d),
    p && num(p.total) > 0 && el('progress', { max: 100, value: share(p), 'aria-label': 'copied' }),
    facts([
      ['Available', !u && (d.availableUpgrades || []).map((a) => a.targetVersion).join(', ')],
      ['Copied', copied(d)],
      ['Shards', u && `${u.readyShards.length} of ${d.ringSize} ready`],
      ['Lag', p && (u || num(p.total)) && lag(p.maxLagMillis)],
      ['Compared', p && (u || num(p.verified)) && `${count(p.verified)} groups, ${count(p.mismatched)} different`],
      ['Switch', u && policy(u)],
      ['Pace', pace(d.pace)],
      ['Data update', d.update && `${d.update.name}${d.update.key ? ' to ' + d.update.key : ''} over ${d.update.kind} of ${d.update.version}: ${d.update.doneShards} of ${d.ringSize} shards, ${count(d.update.seen)} seen, ${count(d.update.changed)} changed${d.update.lastError ? '; last error: ' + d.update.lastError : ''}`],
      ['Follows', (d.following || []).map(following).join('. ')],
      ['Replaced', d.replaced && replaced(d.replaced, d.ringSize)],
    ])));
}

// following is what a data update that begins by itself has done, and what it waits for.
function following(f) {
  const done = f.running ? `; pass ${f.passes} runs`
    : f.passes ? `; ${f.passes} ${f.passes === 1 ? 'pass' : 'passes'}, ${count(f.changed)} changed; the latest: ${f.outcome}` : '';
  return `${f.task} follows ${f.deployment} to ${f.version}${done}${f.again ? '; another pass follows' : ''}${f.waitsFor ? '; waits for ' + f.waitsFor : ''}`;
}

function replaced(r, ring) {
  const names = (r.kinds || []).map((k) => k.kind + (k.at ? ' at ' + time(k.at) : '')).reverse().slice(0, 3).join(', ');
  const copy = num(r.total) ? `${count(r.copied)} of ${count(r.total)} copied, ` : '';
  return `${names} of ${r.version}; ${r.to} is rebuilt: ` + (r.reportingShards ? `${copy}${r.comparedShards} of ${ring} shards compared` : 'not begun');
}

function readiness(d, user, latest) {
  const r = d.readiness;
  if (!r) return [];
  const waits = blockers(r);
  const pause = r.predictedPauseMillis;
  return card('What the switch waits for',
    waits.length > 0
      ? el('ul', { class: 'waits' }, waits.map((b) => el('li', {}, b.text, b.resolve && !b.text.includes(b.resolve) && el('span', { class: 'resolve' }, ' → ' + b.resolve),
        user.operator && resolver(b, d, latest))))
      : el('p', {}, d.upgradeState?.state === 'SWITCHING' ? 'The switch runs.' : 'Nothing else.'),
    facts([['Predicted pause', pause === undefined ? 'not known yet' : millis(pause) + parts(r.predictedMillis)], ['Rollback', r.rollback]]));
}

const steps = ['hold', 'fence', 'drain', 'seal', 'flip', 'restart'];

// parts are the parts of a pause, in their order. Only a prediction has the restart of servers.
function parts(each) {
  const known = steps.filter((step) => each && step in each);
  return known.length > 0 ? ` (${known.map((step) => `${step} ${each[step]} ms`).join(', ')})` : '';
}

function rollback(d) {
  const s = d.lastSwitch;
  const safe = d.rollbackSafe;
  const lines = facts([
    ['Rollback', rollbackSafe(safe)],
    ['It will lack', (safe?.lacks || []).join('; ')],
    ['Reverse sync', d.reverseSync && (d.reverseSync.enabled ? 'on' : 'off') + (d.reverseSync.reason ? ': ' + d.reverseSync.reason : '')],
    ['Latest switch', s && `${s.fromVersion} → ${s.toVersion} at ${time(s.at)} UTC${s.back ? ', a rollback' : ''}`],
    ['Writes held', s && parts(s.millis) && millis(s.pauseMillis) + parts(s.millis)],
  ]);
  return lines ? card('Rollback and latest switch', lines) : [];
}

// The overview: every deployment with its version, phase and health, also those of other regions.

import { call } from './api.js';
import { Part, announce, el, num, table } from './dom.js';
import { poll } from './follow.js';
import { listed, rollouts } from './rollouts.js';
import { concerns, copied, phase, short } from './words.js';

const every = 3000; // milliseconds between two looks
const most = 50; // deployments that one look asks for

// looked are the latest answers about single deployments, by name. A list has only their records.
const looked = new Map();
let look = 0; // counts the looks

// all returns the deployments, each with its progress where it is known. Of many deployments each look
// asks for those that were not asked for the longest.
async function all() {
  const list = await call('ListDeployments', {});
  const deployments = list.deployments || [];
  look++;
  const at = (d) => looked.get(d.name)?.at || 0;
  await Promise.all(deployments.toSorted((a, b) => at(a) - at(b)).slice(0, most).map(async (d) => {
    let answer;
    try {
      answer = await call('GetDeployment', { name: d.name });
    } catch { /* the list has the record; the rest is not known */ }
    looked.set(d.name, { at: look, answer });
  }));
  const names = new Set(deployments.map((d) => d.name));
  for (const name of looked.keys()) if (!names.has(name)) looked.delete(name);
  return { deployments: deployments.map(together), unreadable: list.unreadable || [], regions: list.regions || [], more: await rollouts() };
}

// together adds what only an answer about the deployment has to its record in the list. After a switch
// or another upgrade an older answer is about something else.
function together(d) {
  const answer = looked.get(d.name)?.answer;
  if (!answer || answer.epoch !== d.epoch || answer.upgradeState?.id !== d.upgradeState?.id) return d;
  if (num(answer.revision) >= num(d.revision)) return { ...answer, region: d.region, whole: true };
  const { upgradeState, restored, different, breaches, pace, update } = d;
  return { ...answer, region: d.region, upgradeState, restored, different, breaches, pace, update, whole: true };
}

export function overview(main, user, signal, fail) {
  document.title = 'Deployments - dbcontroller';
  const list = new Part('section', { class: 'card' });
  const waves = new Part('section', { class: 'card', id: 'rollouts' });
  main.replaceChildren(el('h1', {}, 'Deployments'), list.node, waves.node);
  poll(all, every, signal, ({ deployments, unreadable, regions, more }) => {
    const region = (r) => (regions.length > 0 ? [r.region || 'here'] : []);
    list.show([deployments.map(row), unreadable, regions], () => [
      deployments.length > 0
        ? table('Deployments', ['Deployment', ...(regions.length > 0 ? ['Region'] : []), 'Version', 'Upgrade', 'Copied', 'Shards ready', 'Health'], deployments.map(row).map((r) => [
          el('a', { href: '#/d/' + encodeURIComponent(r.name) }, short(r.name)), ...region(r), r.version, r.upgrade, r.copied || '-', r.ready,
          r.concerns.length === 0 ? (r.whole ? el('span', { class: 'badge good' }, 'good') : el('span', { class: 'badge' }, 'not known'))
            : [el('span', { class: 'badge ' + r.concerns[0].level }, r.concerns[0].level === 'bad' ? 'needs you' : 'look'), ' ', r.concerns[0].text,
              r.concerns.length > 1 && ` (and ${r.concerns.length - 1} more)`],
        ]))
        : el('p', { class: 'quiet' }, 'There is no deployment yet.'),
      regions.filter((r) => r.unavailable).map((r) => el('p', { class: 'error' }, `Region ${r.name} is not shown: ${r.unavailable}`)),
      unreadable.map((u) => el('p', { class: 'error' }, `${u.name} cannot be read: ${u.reason}`)),
    ]);
    listed(waves, user, more);
    announce(deployments.length === 1 ? '1 deployment' : `${deployments.length} deployments`);
  }, fail);
}

function row(d) {
  const u = d.upgradeState;
  return {
    name: d.name, region: d.region, version: d.currentVersion, upgrade: u ? `to ${u.targetVersion}: ${phase(u)}` : '-', copied: u ? copied(d) : '',
    ready: u ? `${u.readyShards.length}/${d.ringSize}` : '-', concerns: concerns(d, d.whole), whole: Boolean(d.whole),
  };
}

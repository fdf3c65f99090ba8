// The overview: every deployment with its version, phase and health.

import { call } from './api.js';
import { Part, announce, el, table } from './dom.js';
import { poll } from './follow.js';
import { listed, rollouts } from './rollouts.js';
import { concerns, copied, phase, short } from './words.js';

const every = 3000; // milliseconds between two looks
const most = 50; // deployments whose progress is asked for

// all returns the deployments, each with its progress where it can be had.
async function all() {
  const list = await call('ListDeployments', {});
  const whole = (list.deployments || []).map(async (d, i) => {
    if (i >= most) return d;
    try {
      return { ...await call('GetDeployment', { name: d.name }), whole: true };
    } catch {
      return d; // the list itself has the essentials
    }
  });
  return { deployments: await Promise.all(whole), unreadable: list.unreadable || [], more: await rollouts() };
}

export function overview(main, user, signal, fail) {
  document.title = 'Deployments - dbcontroller';
  const list = new Part('section', { class: 'card' });
  const waves = new Part('section', { class: 'card', id: 'rollouts' });
  main.replaceChildren(el('h1', {}, 'Deployments'), list.node, waves.node);
  poll(all, every, signal, ({ deployments, unreadable, more }) => {
    list.show([deployments.map(row), unreadable], () => [
      deployments.length > 0
        ? table('Deployments', ['Deployment', 'Version', 'Upgrade', 'Copied', 'Shards ready', 'Health'], deployments.map(row).map((r) => [
          el('a', { href: '#/d/' + encodeURIComponent(r.name) }, short(r.name)), r.version, r.upgrade, r.copied || '-', r.ready,
          r.concerns.length === 0 ? el('span', { class: 'badge good' }, 'good')
            : [el('span', { class: 'badge ' + r.concerns[0].level }, r.concerns[0].level === 'bad' ? 'needs you' : 'look'), ' ', r.concerns[0].text,
              r.concerns.length > 1 && ` (and ${r.concerns.length - 1} more)`],
        ]))
        : el('p', { class: 'quiet' }, 'There is no deployment yet.'),
      unreadable.map((u) => el('p', { class: 'error' }, `${u.name} cannot be read: ${u.reason}`)),
    ]);
    listed(waves, user, more);
    announce(deployments.length === 1 ? '1 deployment' : `${deployments.length} deployments`);
  }, fail);
}

function row(d) {
  const u = d.upgradeState;
  return {
    name: d.name, version: d.currentVersion, upgrade: u ? `to ${u.targetVersion}: ${phase(u)}` : '-', copied: u ? copied(d) : '',
    ready: u ? `${u.readyShards.length}/${d.ringSize}` : '-', concerns: concerns(d, d.whole),
  };
}

// The tables of a deployment: versions, servers and applications, history.

import { CallError, call } from './api.js';
import { between, bytes, card, count, el, facts, millis, num, table, time } from './dom.js';

// Sizes are the sizes of kinds. Databases are asked for them when the view opens, when versions or the
// phase have changed, and every minute while the page can be seen.
export class Sizes {
  constructor(name, signal, changed) {
    this.name = name;
    this.signal = signal;
    this.changed = changed;
    this.known = []; // as the API has them
    this.asked = 0;
    this.key = '';
  }

  async ask(d) {
    const key = JSON.stringify([d.currentVersion, d.upgradeState?.state, (d.namespaces || []).map((n) => n.version)]);
    const every = 60000; // milliseconds
    if (document.hidden || (key === this.key && Date.now() - this.asked < every)) return;
    this.key = key;
    this.asked = Date.now();
    try {
      this.known = (await call('GetSizes', { name: this.name })).sizes || [];
      if (!this.signal.aborted) this.changed();
    } catch (e) {
      // Missing sizes are no reason to disturb the view. An older controller has no such call.
      if (!(e instanceof CallError)) throw e;
    }
  }

  of(version, kind) {
    const s = this.known.find((k) => k.version === version && k.kind === kind);
    if (!s) return '-';
    return s.problem ? el('span', { title: s.problem }, 'not known') : `${count(s.records)}, ${bytes(s.bytes)}`;
  }
}

export function versions(d, encryption, sizes) {
  const rows = (d.namespaces || []).flatMap((n) => (n.kinds?.length ? n.kinds : [{}]).map((k, i) => [
    i === 0 ? [el('strong', {}, n.version), n.version === d.currentVersion && ' (current)'] : '', i === 0 ? n.location : '', k.kind || '-',
    [k.physicalName || '-', k.nextName && ` → ${k.nextName}`], k.fenceClass ? el('span', { title: k.fenceGuarantee }, k.fenceClass) : '-', k.kind ? sizes.of(n.version, k.kind) : '-',
  ]));
  const guarantees = new Map((d.namespaces || []).flatMap((n) => n.kinds || []).filter((k) => k.fenceClass).map((k) => [k.fenceClass, k.fenceGuarantee]));
  return card('Versions', table('Versions', ['Version', 'Location', 'Kind', 'Collection', 'Fence', 'Records, about'], rows),
    facts([
      ...[...guarantees].map(([fence, promise]) => ['Fence ' + fence, promise]),
      ...(d.namespaces || []).map((n) => ['Encryption ' + n.version, encryption(n.encryption)]),
      ['Being retired', d.retiring && d.retiring + ': its namespace is being set aside, or dropped'],
      ['Retired', (d.retired || []).join(', ')],
      ...(d.kept || []).map((k) => ['Kept ' + k.version, `in ${k.location}, ${k.until ? 'until ' + time(k.until) + ' UTC' : 'being dropped'}: ${k.collections.join(', ')}`]),
    ]));
}

export function servers(d) {
  const usage = (s) => s.usage?.length ? s.usage.map((u) => `${u.version} ${count(u.calls)}${u.last ? ', last ' + time(u.last) : ''}`).join('; ') : '-';
  const rows = (d.servers || []).map((s) => [
    s.id, s.client ? 'application or proxy' : 'server', (s.versions || []).join(' ') || '-', s.activeVersion || '-',
    s.acked ? `yes${s.held ? ', ' + count(s.held) + ' writes' : ''}` : 'no', usage(s),
  ]);
  return card('Controllers, servers, applications',
    el('p', {}, d.controllers?.length ? 'Controllers alive: ' + d.controllers.join(', ') : 'No controller is alive.'),
    rows.length > 0 ? table('Servers and applications', ['Name', 'Role', 'Versions', 'Serves', 'Holds writes', 'Called'], rows)
      : el('p', { class: 'quiet' }, 'No server, application or proxy is registered.'));
}

const subject = (e) => e.from && e.to ? `${e.from} → ${e.to}` : e.from || e.id || '';
const who = (e) => !e.identity ? e.by : !e.by || e.by === e.identity ? e.identity : `${e.identity} (${e.by})`;

export function history(d) {
  const entries = (d.history || []).toReversed();
  if (entries.length === 0) return card('History', el('p', { class: 'quiet' }, 'Nothing has happened yet.'));
  return card('History',
    table('History, the latest first', ['At (UTC)', 'What', 'Of', 'By', 'Took', 'Outcome', 'Detail'], entries.map((e) => [
      time(e.at), e.what, el('span', { title: e.id }, subject(e) || '-'), who(e) || '-', between(e.at, e.ended) || '-',
      [e.outcome || (e.phases?.length && !e.ended ? 'runs' : '-'), num(e.pauseMillis) > 0 && `, writes held ${millis(e.pauseMillis)}`], e.detail || '-',
    ])),
    num(d.historyDropped) > 0 && el('p', { class: 'quiet' }, `${count(d.historyDropped)} older entries were dropped; the audit logs have them.`));
}

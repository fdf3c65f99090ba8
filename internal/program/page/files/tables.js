// The tables of a deployment: versions, servers and applications, history.

import { between, card, count, el, facts, millis, num, table, time } from './dom.js';

export function versions(d, encryption) {
  const rows = (d.namespaces || []).flatMap((n) => (n.kinds?.length ? n.kinds : [{}]).map((k, i) => [
    i === 0 ? [el('strong', {}, n.version), n.version === d.currentVersion && ' (current)'] : '', i === 0 ? n.location : '', k.kind || '-',
    [k.physicalName || '-', k.nextName && ` → ${k.nextName}`], k.fenceClass ? el('span', { title: k.fenceGuarantee }, k.fenceClass) : '-',
  ]));
  const guarantees = new Map((d.namespaces || []).flatMap((n) => n.kinds || []).filter((k) => k.fenceClass).map((k) => [k.fenceClass, k.fenceGuarantee]));
  return card('Versions', table('Versions', ['Version', 'Location', 'Kind', 'Collection', 'Fence'], rows),
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

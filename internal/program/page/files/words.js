// The state of a deployment in words, as the command line has them.

import { count, millis, num, records, seconds, time } from './dom.js';

export const short = (name) => name.replace(/^services\//, '').replace('/deployments/', ' in ');

// phase is the state of an upgrade, with its step.
export const phase = (u) => u.state + (u.step ? '/' + u.step : '');

// policy is when an upgrade switches.
export function policy(u) {
  const p = u.policy || {};
  const parts = [p.hold ? (u.switchAsked ? 'switch when ready, as asked for' : 'hold at ready until you switch') : 'switch when ready'];
  if (u.toSnapshot) parts.unshift('TO THE SNAPSHOT, without the writes since the latest switch');
  if (num(p.deadlineMs)) parts.push('deadline ' + millis(p.deadlineMs));
  if (num(p.maxPauseMs)) parts.push('pause at most ' + millis(p.maxPauseMs));
  if (num(p.maxHoldMs)) parts.push('writes held at most ' + millis(p.maxHoldMs));
  if (p.retries < 0) parts.push('no second attempt');
  if (p.retries > 0) parts.push(`at most ${p.retries} more attempts`);
  return parts.join('; ');
}

// pace is the limits of bulk work; empty: as configured, and not held back.
export function pace(p) {
  const parts = [];
  if (!p) return '';
  if (p.paused) parts.push('paused' + (p.reason ? ': ' + p.reason : ''));
  if (p.maxRate) parts.push(`at most ${count(p.maxRate)}/s`);
  if (p.maxSourceLoad) parts.push(`source load at most ${p.maxSourceLoad} %`);
  if (p.window) parts.push(`within ${p.window} UTC`);
  if (p.now?.length) parts.push('throttled now: ' + p.now.join(', '));
  return parts.join('; ');
}

// copied is how far the copy is.
export function copied(d) {
  const p = d.progress;
  if (!p || !num(p.total)) return '';
  const parts = [`${count(p.copied)} of ${count(p.total)} records (${share(p)} %)`];
  if (p.rate >= 1) parts.push(count(p.rate) + '/s');
  if (p.etaSeconds !== undefined && num(p.copied) < num(p.total)) parts.push(seconds(p.etaSeconds) + ' left');
  if (p.reportingShards < d.ringSize) parts.push(`${p.reportingShards} of ${d.ringSize} shards, the others have no controller`);
  return parts.join(', ');
}

// share is the copied part in percent.
export const share = (p) => num(p.total) ? Math.min(100, Math.floor(num(p.copied) * 100 / num(p.total))) : 0;

export const lag = (value) => value === undefined ? 'not known' : millis(value);

// blockers are the reasons that a switch waits: text, and what resolves each.
export function blockers(readiness) {
  if (!readiness) return [];
  if (!readiness.blockers?.length) return (readiness.waitsFor || []).map((text) => ({ text }));
  return readiness.blockers.map((b) => {
    const place = [b.version, b.kind].filter(Boolean).join('/');
    const named = (!b.kind || b.text.includes(b.kind)) && (!b.version || b.text.includes(b.version));
    return { text: named ? b.text : `${place}: ${b.text}`, resolve: b.resolve, code: b.code };
  });
}

// rollbackSafe is whether a rollback would lose anything.
export function rollbackSafe(r) {
  if (!r) return '';
  return (r.safe ? 'safe' : 'NOT SAFE: ' + r.reason) + (num(r.waived) ? `; ${count(r.waived)} waived` : '');
}

// encryption is which keys the records of a version are under.
export function encryption(e) {
  if (!e) return '';
  const under = (key) => key === 'off' ? 'plain' : 'under ' + key;
  const parts = [];
  if (!e.key) parts.push('not known yet');
  else if (e.every) parts.push('every record is ' + under(e.key));
  else parts.push(`written ${under(e.key)}, records may be under ${e.keys.join(', ')}: NOT PROMISED that all are ${under(e.key)}`);
  if (e.key && e.active !== e.key) parts.push('configured as active is ' + e.active);
  if (e.declined) parts.push(`a rotation to ${e.declined} was cancelled or failed for some records`);
  if (e.error) parts.push('the database does not answer' + (e.at ? ' since ' + time(e.at) : '') + ': ' + e.error);
  return parts.join('; ');
}

// former is how and by whom a name is used that a switch has left.
export function former(u) {
  const uses = num(u.reads) + num(u.writes) ? `${count(u.reads)} reads, ${count(u.writes)} refused writes` : 'the number is unknown';
  const who = (u.users || []).slice(0, 5).map((c) => (c.application || 'an application without a name') +
    (c.driver ? ` (${c.driver})` : '') + (c.address ? ' at ' + c.address : ''));
  return `${u.kind} of ${u.version}, which the switch left: ${uses}, last ${time(u.last)}; ` +
    (who.length ? 'seen: ' + who.join(', ') : 'no client seen yet');
}

// concerns are what an operator must know, the worst first. level is bad or warn. A list has no
// progress, so the caller says whether the deployment is whole.
export function concerns(d, whole) {
  const bad = [];
  const warn = [];
  if (d.restored) bad.push('It waits for ' + d.restored);
  if (d.different) bad.push('The switch waits for ' + d.different);
  for (const b of d.breaches || []) bad.push(`Breach of the fence of ${b.kind} of ${b.version}: ${b.what}`);
  for (const line of d.unreadable || []) bad.push('Unreadable: ' + line);
  if (d.upgradeState?.abortReason) bad.push('Aborting: ' + d.upgradeState.abortReason);
  if (num(d.progress?.parked)) bad.push(`${records(d.progress.parked)} parked: the switch waits until you correct or waive them`);
  if (d.progress?.lastError) bad.push('Last error: ' + d.progress.lastError);
  if (whole && !d.controllers?.length) bad.push('No controller is alive');
  if (d.upgradeState?.failures) warn.push(`${d.upgradeState.failures} attempts at the switch were given up, the latest because: ${d.upgradeState.lastFailure}`);
  if (d.pace?.paused) warn.push('Bulk work is paused' + (d.pace.reason ? ': ' + d.pace.reason : ''));
  if (d.rollbackSafe && !d.rollbackSafe.safe) warn.push('A rollback is not safe: ' + d.rollbackSafe.reason);
  for (const u of d.formerNames?.uses || []) warn.push('Still used: ' + former(u));
  if (d.views) warn.push('Views: ' + d.views);
  if (num(d.progress?.lateDeletes)) warn.push(`${count(d.progress.lateDeletes)} late deletes passed a validator fence; the reverse sync undoes them`);
  for (const w of d.warnings || []) warn.push('Insecure: ' + w);
  for (const s of d.servers || []) for (const w of s.warnings || []) warn.push(`Insecure: server ${s.id}: ${w}`);
  for (const s of d.servers || []) for (const c of s.copies || []) {
    const what = `Copies of ${c.kind} of region ${c.region} in ${c.version}`;
    if (!c.whole) warn.push(`${what} are incomplete` + (c.problem ? ': ' + c.problem : ''));
    else if (c.away) warn.push(`${what} may be outdated since ${c.away}` + (c.problem ? ': ' + c.problem : ''));
    if (c.both) bad.push(`${what}: ${c.both} names are owned here as well`);
  }
  for (const s of d.servers || []) for (const m of s.moves || []) {
    warn.push(`${m.count} of ${m.kind} move ${m.in ? 'from' : 'to'} region ${m.region} since ${m.since}: ${m.record}: ${m.waits}`);
  }
  return [...bad.map((text) => ({ level: 'bad', text })), ...warn.map((text) => ({ level: 'warn', text }))];
}

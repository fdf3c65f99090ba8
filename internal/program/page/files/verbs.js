// The verbs, as the command line has them: what each asks for, and which calls it makes. Which verbs
// make sense now follows from the deployment; the controller decides all the same.

import { call } from './api.js';
import { count, el, millis, num, seconds } from './dom.js';
import { open, report } from './dialog.js';

// whole reads a number that may be left out.
const whole = (text) => text === '' ? undefined : Number(text);
const ms = (text) => text === '' ? undefined : String(Math.round(Number(text) * 1000));

const policyFields = (p) => [
  { name: 'hold', label: 'Hold when ready, until you switch', type: 'checkbox', value: p?.hold ?? true },
  { name: 'maxPause', label: 'Longest pause, in milliseconds', help: 'wait while the predicted pause is longer; empty: no limit', type: 'number', min: 0, value: num(p?.maxPauseMs) || '' },
  { name: 'deadline', label: 'Deadline of the switch, in seconds', help: 'it aborts after that; empty: as configured', type: 'number', min: 0, step: 'any', value: num(p?.deadlineMs) / 1000 || '' },
];

const pace = (d, request) => ['SetPace', { name: d.name, ...request }];

export const verbs = {
  begin: (d) => ({
    title: 'Begin an upgrade …', act: 'Begin the upgrade',
    help: 'Controllers copy all records, keep them in sync, and switch when all shards are ready.',
    fields: [
      { name: 'target', label: 'Version', options: targets(d) },
      ...policyFields(), { name: 'rate', label: 'Records a second at most', help: 'empty: as it is', type: 'number', min: 1 },
    ],
    calls: (v) => [
      ...v.rate ? [pace(d, { maxRate: whole(v.rate) })] : [],
      ['BeginUpgrade', { name: d.name, targetVersion: v.target, policy: { hold: v.hold, maxPauseMs: v.maxPause || '0', deadlineMs: ms(v.deadline) || '0' } }],
    ],
  }),
  plan: (d) => ({
    title: 'Plan …', help: 'What an upgrade would need and do. It changes nothing, but it reads the databases.',
    fields: [{ name: 'target', label: 'Version', options: [...new Set([...(d.availableUpgrades || []).map((a) => a.targetVersion), ...(d.namespaces || []).map((n) => n.version)])].filter((v) => v !== d.currentVersion) }],
    shows: async (v, say, signal) => planned(await report('StreamPlan', { name: d.name, targetVersion: v.target }, say, signal)),
  }),
  switch: (d) => ({
    title: 'Switch', help: 'Let the held upgrade switch.',
    // The real call is about the upgrade that the dry run saw.
    calls: () => [['Switch', { name: d.name, upgradeId: d.upgradeState.id }]],
  }),
  policy: (d) => ({
    title: 'Conditions …', act: 'Change the conditions', help: 'When the upgrade that runs may switch.', fields: policyFields(d.upgradeState.policy),
    calls: (v) => [['SetPolicy', { name: d.name, upgradeId: d.upgradeState.id, hold: v.hold, maxPauseMs: v.maxPause || '0', deadlineMs: ms(v.deadline) || '0' }]],
  }),
  abort: (d) => ({
    title: 'Abort …', act: 'Abort the upgrade', danger: true, help: 'End the upgrade that runs. The current version stays, with all writes.',
    fields: [{ name: 'reason', label: 'Reason', help: 'for the history' }],
    calls: (v) => [['AbortUpgrade', { name: d.name, upgradeId: d.upgradeState.id, reason: v.reason }]],
  }),
  pause: (d) => ({
    title: 'Pause …', act: 'Pause bulk work', help: 'Stop copies, whole comparisons and data updates until you resume. Changes are still applied. No switch begins.',
    fields: [{ name: 'reason', label: 'Reason', help: 'for the history' }], calls: (v) => [pace(d, { paused: true, reason: v.reason })],
  }),
  resume: (d) => ({ title: 'Resume', act: 'Resume bulk work', help: 'Go on with bulk work.', calls: () => [pace(d, { paused: false })] }),
  pace: (d) => ({
    title: 'Pace …', act: 'Set the pace', help: 'How fast bulk work goes, on all controllers at once. Changes are always applied at full speed.',
    fields: [
      { name: 'maxRate', label: 'Records a second at most', help: '0: as configured', type: 'number', min: 0, value: d.pace?.maxRate || 0 },
      { name: 'load', label: 'Load of the source that slows it down, in percent', help: '0: as configured', type: 'number', min: 0, max: 100, value: d.pace?.maxSourceLoad || 0 },
      { name: 'window', label: 'Window in UTC', help: 'such as 22:00-05:00; empty: at any time', value: d.pace?.window || '' },
    ],
    calls: (v) => [pace(d, { maxRate: whole(v.maxRate), maxSourceLoad: whole(v.load), window: v.window })],
  }),
  rollback: (d) => ({
    title: `Roll back to ${d.lastSwitch.fromVersion} …`, act: 'Roll back', danger: true,
    help: `Return to ${d.lastSwitch.fromVersion}, which has followed all changes since the switch.`,
    fields: policyFields({ hold: false }),
    calls: (v) => [['BeginUpgrade', { name: d.name, targetVersion: d.lastSwitch.fromVersion, policy: { hold: v.hold, maxPauseMs: v.maxPause || '0', deadlineMs: ms(v.deadline) || '0' } }]],
  }),
  snapshot: (d) => ({
    title: `Roll back to the snapshot of ${d.lastSwitch.fromVersion} …`, act: 'Roll back, and lose these writes', danger: true,
    help: 'Return to the old data as the switch left them. All later writes are lost. First they are counted.',
    fields: [{ name: 'sure', label: 'Count what would be lost', type: 'checkbox', value: true, required: true }],
    prepare: async (_, say, signal) => {
      const r = await report('EstimateLoss', { name: d.name }, say, signal);
      return {
        confirm: r.confirm || d.name,
        text: `It would lose ${count(r.created)} created, ${count(r.changed)} changed and ${count(r.deleted)} deleted groups, of ${count(r.compared)}` +
          ((r.examples || []).length ? ', such as ' + r.examples.slice(0, 3).join(', ') : '') + (r.confirmLacks ? '; ' + r.confirmLacks : ''),
      };
    },
    calls: (v) => [['BeginUpgrade', { name: d.name, targetVersion: d.lastSwitch.fromVersion, toSnapshot: true, acceptLoss: true, confirm: v.confirm || '' }]],
  }),
  complete: (d) => ({
    title: 'Complete …', act: 'Retire the version', danger: true,
    help: 'Retire a version that the deployment has left. Its collections are set aside, and dropped later. There is no rollback to it afterwards.',
    fields: [
      { name: 'version', label: 'Version', options: (d.namespaces || []).map((n) => n.version).filter((v) => v !== d.currentVersion) },
      // An empty field would be a 0, and the collections would be dropped at once.
      { name: 'unused', label: 'Unused for at least, in hours', type: 'number', min: 0, value: 1, required: true },
      { name: 'keep', label: 'Keep its collections for, in hours', help: '0: drop them at once', type: 'number', min: 0, value: 24, required: true },
      { name: 'ignore', label: 'Although its API was called recently, or servers cannot report calls', type: 'checkbox' },
    ],
    calls: (v) => [['Complete', { ...completion(d, v), confirm: v.confirm || '' }]],
  }),
  verify: (d) => ({
    title: 'Compare …', help: 'Compare all records of source and target through the transform, once. A difference blocks the switch until another comparison finds none.',
    shows: async (_, say, signal) => verified(await report('Verify', { name: d.name }, say, signal)),
  }),
  repair: (d) => ({ title: 'Repair', act: 'Correct the target', help: 'Let controllers correct every group that differs.', calls: () => [['Repair', { name: d.name }]] }),
  breaches: (d) => ({
    title: 'Accept breaches', act: 'Accept the breaches', danger: true, help: 'The writes that passed a fence were dealt with. They count no more; the collections that hold them stay.',
    calls: () => [['AcceptBreaches', { name: d.name }]],
  }),
  restored: (d) => ({
    title: 'Decide about the restored database …', act: 'Decide', danger: true, help: 'Which data count, after the database of the served version was restored from a backup.',
    fields: [{ name: 'choice', label: 'These data count', options: ['follow: the restored state', 'keep: the other version'] }],
    prepare: async (v, say, signal) => {
      try {
        const r = await report('EstimateLoss', { name: d.name }, say, signal);
        return { text: `Of ${count(r.compared)} groups, ${count(r.created)} are only in the restored data, ${count(r.changed)} differ, and ${count(r.deleted)} are only in the other version. ` +
          (v.choice.startsWith('follow') ? 'The last two kinds become as in the restored data.' : 'The first two kinds become as in the other version.') };
      } catch (e) {
        // Nothing may follow, or another count runs: nobody decides without being told that.
        if (e.code !== 'failed_precondition') throw e;
        return { text: `What the decision drops was not counted: ${e.message}` };
      }
    },
    calls: (v) => [['DecideRestored', { ...decision(d, v), confirm: v.confirm || '' }]],
  }),
  remove: (d) => ({
    title: 'Remove …', act: 'Remove the deployment', danger: true, help: 'Delete this deployment, which has no databases. Its history goes with it.',
    calls: (v) => [['RemoveDeployment', { name: d.name, confirm: v.confirm || '' }]], after: () => { location.hash = '#/'; },
  }),
  cancelUpdate: (d) => ({
    title: 'Cancel the data update …', act: 'Cancel the data update', danger: true, help: 'End the data update that runs. What it changed stays.',
    fields: [{ name: 'reason', label: 'Reason', help: 'for the history' }],
    calls: (v) => [['CancelUpdate', { name: d.name, updateId: d.update.id, reason: v.reason }]],
  }),
};

const completion = (d, v) => ({
  name: d.name, version: v.version, ignoreUsage: v.ignore, keepForMs: String(num(v.keep) * 3600000),
  unusedForMs: String(Math.max(1, num(v.unused) * 3600000)), // 0 is the API's default
});

const decision = (d, v) => ({ name: d.name, follow: v.choice.startsWith('follow'), keep: v.choice.startsWith('keep') });

function planned(r) {
  const word = { OK: 'good', WARNING: 'warn', FAILED: 'bad' };
  return [
    el('p', {}, `${r.fromVersion} → ${r.toVersion}: `, r.ok ? 'nothing stands against it' : el('strong', {}, 'it would fail'),
      r.estimatedCopySeconds !== undefined && `; the copy takes about ${seconds(r.estimatedCopySeconds)}`,
      r.predictedPauseMillis !== undefined && `; predicted pause ${millis(r.predictedPauseMillis)}`),
    el('ul', { class: 'checks' }, (r.checks || []).map((c) => el('li', {}, el('span', { class: 'badge ' + word[c.verdict] }, c.area), ' ', c.subject && c.subject + ': ', c.text))),
  ];
}

function verified(r) {
  return [
    el('p', {}, el('span', { class: 'badge ' + (r.equal ? 'good' : 'bad') }, r.equal ? 'equal' : 'DIFFERENT'),
      ` ${count(r.compared)} groups compared in ${millis(r.millis)}, ${count(r.mismatched)} different` + (num(r.waived) ? `, ${count(r.waived)} waived` : '')),
    el('ul', {}, [...r.shapes || [], ...r.examples || [], ...(r.waivedExamples || []).map((n) => n + ' (waived)')].map((n) => el('li', {}, n))),
  ];
}

// targets are the versions that an upgrade may move to. The way back is another verb.
const targets = (d) => (d.availableUpgrades || []).map((a) => a.targetVersion).filter((v) => !d.lastSwitch || d.lastSwitch.back || v !== d.lastSwitch.fromVersion);

// possible are the names of the verbs that make sense now.
function possible(d) {
  const u = d.upgradeState;
  const left = (d.namespaces || []).some((n) => n.version !== d.currentVersion) && d.lastSwitch;
  return [
    !u && targets(d).length > 0 && 'begin',
    u && u.state !== 'SWITCHING' && u.policy?.hold && !u.switchAsked && 'switch',
    u && u.state !== 'SWITCHING' && 'policy', u && 'abort',
    !u && d.lastSwitch && !d.lastSwitch.back && (d.reverseSync?.enabled ? 'rollback' : 'snapshot'),
    d.pace?.paused ? 'resume' : 'pause', 'pace',
    d.restored && 'restored', d.different && 'repair', d.breaches?.length && 'breaches', d.update && 'cancelUpdate',
    !d.namespaces?.length && !d.retired?.length && !d.controllers?.length && 'remove',
    !u && 'plan', (u || left) && 'verify', !u && left && !d.retiring && 'complete',
  ].filter(Boolean);
}

const first = ['begin', 'switch'];
const grave = ['abort', 'rollback', 'snapshot', 'complete', 'breaches', 'restored', 'remove'];

// offered are the verbs that make sense now, with their titles.
export const offered = (d) => possible(d).map((name) => [name, verbs[name](d).title]);

// opens opens a verb for the deployment as it is now, if the verb still makes sense.
const opens = (name, latest) => () => possible(latest()).includes(name) && open(verbs[name](latest()));

// buttons are the buttons of offered verbs. latest returns the deployment as it is now.
export function buttons(offers, latest) {
  return offers.map(([name, title]) => el('button', {
    type: 'button', id: 'verb-' + name, class: first.includes(name) ? 'main' : grave.includes(name) ? 'danger' : null, onclick: opens(name, latest),
  }, title));
}

const resolving = { resume: 'resume', switch: 'switch', pace: 'pace', abort: 'abort', verify: 'verify', 'set-policy': 'policy', restored: 'restored', 'accept-breaches': 'breaches', 'verify --repair': 'repair' };

// resolver is a button for the verb that resolves a reason, if the page has it.
export function resolver(blocker, d, latest) {
  if (blocker.code === 'parked') return el('button', { type: 'button', onclick: () => document.getElementById('parked').scrollIntoView() }, 'Show');
  const named = [...`${blocker.resolve || ''} ${blocker.text}`.matchAll(/'(?:dbcontroller )?([a-z-]+(?: --repair)?)[^']*'/g)].map((m) => resolving[m[1]]);
  const name = named.find((n) => n && possible(d).includes(n));
  return name && el('button', { type: 'button', onclick: opens(name, latest) }, verbs[name](d).title);
}

// waive lets the upgrade go on without one parked record.
export function waive(d, p) {
  open({
    title: 'Waive a record', act: 'Waive it', danger: true,
    calls: () => [['WaiveParked', { name: d.name, kind: p.kind, key: p.key }]],
    effects: (r) => [r.waived ? 'nothing: it is waived already' : `let the upgrade continue without ${p.kind}/${p.key}`],
  });
}

// waiveKind lets it go on without any record of a kind that is parked, now or later.
export function waiveKind(d, kind) {
  open({
    title: `Waive all of ${kind}`, act: 'Waive all', danger: true,
    prepare: async () => {
      const now = await call('WaiveKind', { name: d.name, kind, dryRun: true, requestedBy: 'page' });
      return { confirm: num(now.waived) ? String(now.waived) : undefined, text: num(now.waived) ? `${count(now.waived)} records are parked now. Records of ${kind} that are parked later in this direction are waived with them, unseen.` : '' };
    },
    calls: (v) => [['WaiveKind', { name: d.name, kind, count: v.confirm }]],
  });
}

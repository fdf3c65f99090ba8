// Package rollout is the pure state machine of a rollout: one upgrade over many deployments, in
// waves. It has no I/O and no clock. A driver stores each new record before anything acts on it, and
// passes in what it has seen, with the time.
//
// # Terms
//
//   - A wave is a group of deployments that upgrade at the same time.
//   - An order is the instruction to one deployment: upgrade, or roll back. It has an upgrade id that
//     no other order has. So a controller learns the outcome of a lost call from the deployment's own
//     record.
//   - A gate decides whether the next wave may begin: every deployment of the wave serves the target,
//     nothing is known against it, and the checks pass, all of this for the hold time.
//   - A check is a command of the controllers' configuration. A rollout only names it.
//
// # Guarantees
//
//   - A deployment of a wave gets an order only after the gates of all earlier waves have passed.
//   - A gate that cannot be evaluated has not passed. After its limit, the wave has failed.
//   - After a failure no deployment begins to upgrade, until an operator resumes the rollout.
//   - A rollback touches only upgrades that the rollout itself began. It leaves a deployment that
//     somebody else has upgraded since.
//   - A rollback ends. A deployment that does not get further is named with the reason.
//
// Begin to read at Rollout, then Advance and Next.
//
// It is not for users and may change with any version.
package rollout

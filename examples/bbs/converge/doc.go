// Package converge decides how the instances of a process reach the desired state. slot.go applies
// the reports of cells, and decide.go chooses the next actions. Begin to read at Decide.
//
// A process has one active definition, the newest one that its client wants. The healthy definition
// is the last one that was proven, because an instance of it ran. Each index from 0 to the number of
// instances has a slot for each definition that has an instance there. A slot holds one instance.
// Sometimes it also holds an evacuating one, whose cell is being emptied, and which runs until
// another instance of the index does.
//
// # Rollout
//
// A new active definition replaces the others index by index, from 0 on. Its instance starts beside
// the one that runs, which stops once the new one runs.
//
//   - The rollout goes on only while no instance of the process starts or stops. It waits no longer
//     than Process.RolloutTimeout for one that does not start.
//   - Until it is proven, the active definition starts at one index only. It is tried there for ever,
//     unless Process.FallBackAfter is set. The old instances stay.
//   - Once it is proven, an index where it does not run within the timeout is given up
//     (Instance.GivenUp). What runs there stays, and the rollout goes on with the next index.
//   - If yet another definition becomes active, the instances that still start are stopped. The
//     rollout begins again at index 0.
//   - An instance that starts outside of this sequence, after a crash, an evacuation or the loss of
//     its cell, or because the process has grown, has the healthy definition. Without a healthy one
//     it has the active one.
//
// # Guarantees
//
// Decide is a pure function of the state and the time. It is level-triggered: several callers may
// call it at any moment, and may apply its actions partially or twice. Each write must be
// conditional on the state of the decision (Action.Was). Once cells stop crashing, each index has
// one running instance, and no other instance runs. It has the active definition wherever that one
// can run, if it runs at index 0.
//
//   - An instance that runs stops only if another one of the same index runs, or if it is no longer
//     desired. A deleted process stops all its instances, whatever its rollout had reached.
//   - A former definition is deleted once nothing refers to it.
//   - Only its cell stops an instance, on request (Instance.Retire). The service drops an instance
//     without its cell only if the cell is lost.
//
// TestConverges compares random sequences of calls, crashes and clock advances with a model of these
// rules. DBCONTROLLER_SOAK multiplies their number.
//
// The package does not know databases, versions, APIs or clocks. Package bbs handles those, in the
// same way for both versions of the data.
//
// It is not for users and may change with any version.
package converge

// Package converge decides how the instances of a process reach the desired state. slot.go applies
// the reports of cells, and decide.go chooses the next actions. Begin to read at Decide.
//
// A process has one slot for each index from 0 to its number of instances. A slot holds one
// instance. Sometimes it also holds an evacuating one, which runs until the first one does: its
// cell is being emptied, or its definition is no longer active.
//
// # Guarantees
//
// Decide is a pure function of the state and the time. It is level-triggered: several callers may
// call it at any moment, and may apply its actions partially or twice. Each write must be
// conditional on the state of the decision (Action.Was). Once cells stop crashing, each index has
// one running instance of the active definition, and no other instance runs.
//
//   - Instances of other definitions are replaced one at a time, and only while all others run.
//     Each runs until its successor does.
//   - The active definition becomes the healthy one once an instance of it runs. If none runs
//     within its start timeout, the healthy definition becomes active again.
//   - A former definition is deleted once nothing refers to it.
//   - Only its cell stops an instance, on request (Instance.Retire). The service drops an instance
//     without its cell only if the cell is lost.
//
// The package does not know databases, versions, APIs or clocks. Package bbs handles those, in the
// same way for both versions of the data.
//
// It is not for users and may change with any version.
package converge

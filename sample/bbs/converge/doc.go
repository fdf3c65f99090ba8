// Package converge decides how the instances of a process become what the process asks for:
// what it is told of them by cells (slot.go), and what is to be done next (decide.go).
//
// A process has a slot for each index from 0 to its number of instances. In a slot is one
// instance, and sometimes a second one, evacuating, which runs on until the first does: its
// cell is being emptied, or it runs a definition that is no longer the active one.
//
// # Guarantees
//
// Decide is a function of what there is and of the time. It is level-triggered: it may be asked
// at any moment, by several at once, and what it returns may be done in part or twice, as long
// as each change is made of the state that it was decided on (Action.Was). Where no cell crashes
// any more, it leads to one running instance of the active definition at every index, and to
// nothing else.
//
//   - Instances of other definitions are replaced one at a time: the next one when all others
//     run, and each runs until its successor does.
//   - The active definition becomes the healthy one when an instance of it runs. Where none
//     does within its start timeout, the healthy one becomes active again.
//   - A definition that was active before goes when nothing names it.
//   - An instance on a cell is stopped by that cell: it is asked to (Instance.Retire), and only
//     one whose cell is lost is given up without.
//
// The package does not know databases, versions, APIs or clocks: package bbs does all of that
// around it, alike over the data of both versions.
//
// It is not for users and may change with any version.
package converge

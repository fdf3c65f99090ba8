// Package hooks reports the events of a deployment to other systems, by HTTP requests or by running
// a command.
//
// # Guarantees
//
// Events come from the history in the deployment's record. The record and its history change in one
// write, so no event is lost, however controllers fail. The number of parked groups (groups that
// the engine could not transform) is not in the record, so the leader counts them at
// intervals.
//
// The coordination store keeps which events exist and which hooks received them. The leader changes
// this state only by compare-and-swap. So each event is created once, with one id, and the next
// leader continues where the last one stopped.
//
// Each hook receives all events that it wants, in order, at least once. The leader resends an
// unacknowledged event with growing pauses, and later events of that hook wait. After the hook's
// GiveUp the event is dropped for it. A hook that hangs delays only itself; no upgrade waits for a
// hook.
//
// It is not for users and may change with any version.
//
// # What it does not own
//
// The package does not elect the leader (the leader calls Run) and does not read the configuration.
//
// Begin to read at Hooks.Run.
package hooks

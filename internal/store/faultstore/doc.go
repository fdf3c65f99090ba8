// Package faultstore wraps a record.Namespace, a record.Client or both, and injects the faults of
// networks and processes. It returns errors before a command runs, loses acknowledgements after it
// ran, delays commands, and pauses them before or after, for any time.
//
// Each command becomes an Op. An Injector answers an Op with a Fault. The zero Fault has no effect.
// Injectors are small and compose. On and When select commands, Nth and Probability choose among
// them, and Toggle starts faults later. Counter counts the faults that fired. Check it in each
// test: if no fault fired, the test has tested nothing.
//
//	lost := faultstore.Count(faultstore.On(faultstore.Probability(seed, 0.2, faultstore.Lost()), faultstore.Apply))
//	run(faultstore.Wrap(store, lost))
//	lost.AssertFired(t, 1)
//
// # What this package does not own
//
// It injects no faults within a command: the wrapped store decides whether a batch is half applied.
// Faults of real servers and networks belong to the integration folder.
//
// Begin to read in fault.go, then injectors.go.
//
// It is not for users and may change with any version.
package faultstore

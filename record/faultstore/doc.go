// Package faultstore wraps a record.Namespace, a record.Client or both, and does to
// their commands what networks and processes do: errors before a command is done, lost
// acknowledgements after it was done, latency, and pauses of any length at either side.
//
// Every command becomes an Op and is shown to an Injector, which answers with a Fault;
// the zero Fault lets it pass. Injectors are small and compose: On narrows to commands,
// Nth and Probability choose among them, Toggle arms one late, and Counter proves that
// faults did fire, without which a test of faults has tested nothing.
//
//	lost := faultstore.Count(faultstore.On(faultstore.Probability(seed, 0.2, faultstore.Lost()), faultstore.Apply))
//	run(faultstore.Wrap(store, lost))
//	lost.AssertFired(t, 1)
//
// # What this package does not own
//
// Faults within a command: a batch that was half applied is what the wrapped store makes
// of it. Faults of real servers and networks belong to the integration folder.
//
// It is not for users and may change with any version.
package faultstore

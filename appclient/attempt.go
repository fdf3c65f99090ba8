package appclient

import (
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// attempt is one run of a write's callback, which may make several operations. Its state only gets
// worse: after a write or a possible write, no later refusal means that nothing was written.
type attempt struct {
	whole atomic.Bool // a fence refused an operation as a whole
	// wrote counts the operations that may have written: those that did, those with an unknown
	// outcome, and those still running.
	wrote   atomic.Int64
	session *mongo.Session // of App.Transact; nil in App.Write
}

// begins records the start of an operation. It counts as a write until ended proves otherwise. A
// nil attempt records nothing.
func (a *attempt) begins() {
	if a != nil {
		a.wrote.Add(1)
	}
}

// ended records the end of a single-document operation, or of another one that did nothing at all.
// none says that an operation without an error found nothing to write.
func (a *attempt) ended(err error, none bool) {
	if a == nil {
		return
	}
	// A single document is written or not, so a refusal is one as a whole.
	switch outcomeOf(err, true) {
	case done:
		if !none {
			return
		}
	case refused:
		a.whole.Store(true)
	case failed:
	// These may have written something, so the operation stays counted.
	case torn, undone, unknown:
		return
	}
	a.wrote.Add(-1)
}

// became returns the outcome of a run with error err.
func (a *attempt) became(err error) outcome {
	wrote := a.wrote.Load() > 0
	became := outcomeOf(err, a.whole.Load() && !wrote)
	switch {
	case wrote && became == refused:
		return torn // a refusal after a write
	case wrote && became == undone:
		return unknown // its own transaction, next to another write
	}
	return became
}

package appclient

import "sync/atomic"

// attempt is one run of a write's callback, which may have several operations. It only gets
// worse: once one of them has written, or may have, no later refusal makes the run one that wrote nothing.
type attempt struct {
	whole atomic.Bool // a fence refused an operation as a whole
	// wrote counts the operations of which it is not known that they wrote nothing: those that did, that
	// may have, and that are still going on.
	wrote atomic.Int64
}

// begins notes that an operation begins. It counts as one that wrote until it has ended otherwise.
func (a *attempt) begins() {
	if a != nil {
		a.wrote.Add(1)
	}
}

// ended notes how an operation of a single document ended, or another one that did nothing at all.
// If it did not fail, none says whether there was nothing for it to write.
func (a *attempt) ended(err error, none bool) {
	if a == nil {
		return
	}
	switch outcomeOf(err, true) {
	case done:
		if !none {
			return
		}
	case refused:
		a.whole.Store(true)
	case failed:
	case torn, undone, unknown:
		return
	}
	a.wrote.Add(-1)
}

// became tells what became of a run from its error.
func (a *attempt) became(err error) outcome {
	wrote := a.wrote.Load() > 0
	became := outcomeOf(err, a.whole.Load() && !wrote)
	switch {
	case wrote && became == refused:
		return torn // ErrMoved, after something was written
	case wrote && became == undone:
		return unknown // a transaction of its own, beside which something was written
	}
	return became
}

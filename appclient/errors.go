package appclient

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Errors of Write and Transact.
var (
	// ErrNotWritten: a switch did not end in time, or no controller could say where the data is.
	// Nothing was written; do it again.
	ErrNotWritten = errors.New("nothing was written")
	// ErrUnknownOutcome: the write, or a part of it, may have been done or not. Look before it is
	// done again.
	ErrUnknownOutcome = errors.New("it is not known whether this was written")
	// ErrMoved is for a callback to return: what it looked for is not there, and it has written
	// nothing. It is run again if the data has moved; otherwise the call returns this error.
	ErrMoved = errors.New("it is not there")
)

var errClosed = errors.New("the application was closed")

// How a MongoDB server refuses what is sent to a fenced collection.
const (
	validationFailure = 121 // class validator
	notOnView         = 166 // class view
	wrongUUID         = 361 // class uuid
	writesBlocked     = 371 // class writeBlock
)

var fenceCodes = []int{validationFailure, notOnView, wrongUUID, writesBlocked}

// How a read fails that was sent to where the data was.
const (
	namespaceNotFound = 26
	cursorNotFound    = 43
	queryPlanKilled   = 175 // its collection was renamed
	retiredVersion    = 241 // the view that is left of a version that was completed
)

var readCodes = append([]int{namespaceNotFound, cursorNotFound, queryPlanKilled, retiredVersion}, fenceCodes...)

// outcome is what became of a write.
type outcome int

const (
	done    outcome = iota
	failed          // by an error that has nothing to do with a switch
	refused         // by a fence, or by something of the application's own: nothing was written
	torn            // the same, and a part may have been written
	undone          // a transaction that was ended: nothing was written, it can be run again at once
	unknown
)

// Codes after which the driver could not find out what became of a write. The driver repeats
// most of them once by itself.
var unknownCodes = []int{
	6, 7, 89, 9001, // network
	91, 189, 10107, 11600, 11602, 13435, 13436, // another primary
	50, 262, 11601, // interrupted
	64, 100, // not by a majority, yet
	queryPlanKilled, // of many documents some were written
}

// outcomeOf tells what became of a write from its error, and whether a fence, if it was one,
// is known to have refused it as a whole.
func outcomeOf(err error, whole bool) outcome {
	var server mongo.ServerError
	var bulk mongo.BulkWriteException
	var write mongo.WriteException
	var many mongo.ClientBulkWriteException // no ServerError, and without the labels of its cause
	isServer := errors.As(err, &server)
	labelled := func(label string) bool { return isServer && server.HasErrorLabel(label) }
	switch {
	case err == nil:
		return done
	case errors.Is(err, ErrMoved):
		return refused
	case labelled("UnknownTransactionCommitResult"):
		return unknown
	case labelled("TransientTransactionError"):
		return undone
	case errors.As(err, &many):
		return unknown
	case errors.As(err, &bulk):
		return bulkOutcome(bulk, whole)
	case errors.As(err, &write) && write.WriteConcernError != nil:
		return unknown // done here, and maybe not by a majority
	case fenced(err) && whole:
		return refused
	case fenced(err):
		return torn
	case labelled("NoWritesPerformed"):
		return failed
	case errors.Is(err, context.Canceled), mongo.IsNetworkError(err), mongo.IsTimeout(err), labelled("RetryableWriteError"), labelled("NetworkError"):
		return unknown
	case isServer && slices.ContainsFunc(unknownCodes, server.HasErrorCode):
		return unknown
	}
	return failed
}

// fenced reports whether an error is one by which a server refuses what is sent to a fenced
// collection.
func fenced(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(fenceCodes, server.HasErrorCode)
}

func bulkOutcome(bulk mongo.BulkWriteException, whole bool) outcome {
	switch {
	case bulk.WriteConcernError != nil:
		return unknown
	case !fenced(bulk):
		return failed
	case whole:
		return refused
	}
	return unknown
}

// mayHaveMoved reports whether a read can have failed because its data has moved.
func mayHaveMoved(err error) bool {
	var server mongo.ServerError
	return errors.Is(err, ErrMoved) || errors.As(err, &server) && slices.ContainsFunc(readCodes, server.HasErrorCode)
}

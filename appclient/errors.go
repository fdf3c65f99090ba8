package appclient

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Errors of Write and Transact.
var (
	// ErrNotWritten means that nothing was written: a switch did not end in time, or no controller
	// reported the place of the data. The caller may repeat the write.
	ErrNotWritten = errors.New("nothing was written")
	// ErrUnknownOutcome means that the write, or a part of it, may have happened. Read the data
	// before you repeat the write.
	ErrUnknownOutcome = errors.New("it is not known whether this was written")
	// ErrMoved is for callbacks: a callback returns it if it wrote nothing because it did not find
	// its data. The App runs the callback again if the data has moved. Otherwise the call returns
	// this error.
	ErrMoved = errors.New("it is not there")
)

var errClosed = errors.New("the application was closed")

// Error codes of a MongoDB server for a write to a fenced collection.
const (
	validationFailure = 121 // class validator
	notOnView         = 166 // class view
	wrongUUID         = 361 // class uuid
	writesBlocked     = 371 // class writeBlock
)

var fenceCodes = []int{validationFailure, notOnView, wrongUUID, writesBlocked}

// Error codes of a read at the former place of the data.
const (
	namespaceNotFound = 26
	cursorNotFound    = 43
	queryPlanKilled   = 175 // the collection was renamed
	retiredVersion    = 241 // the remaining view of a completed version
)

var readCodes = append([]int{namespaceNotFound, cursorNotFound, queryPlanKilled, retiredVersion}, fenceCodes...)

// outcome is the outcome of a write.
type outcome int

const (
	done    outcome = iota
	failed          // by an error without relation to a switch
	refused         // by a fence or a rule of the application; nothing was written
	torn            // refused, but a part may have been written
	undone          // an aborted transaction: nothing was written; repeat it at once
	unknown
)

// unknownCodes are errors after which the outcome of a write is unknown. The driver has already
// repeated most of them once.
var unknownCodes = []int{
	6, 7, 89, 202, 9001, // network
	91, 189, 10107, 11600, 11602, 13435, 13436, // change of the primary
	50, 262, 11601, 46841, // interrupted
	64, 100, // no majority yet
	queryPlanKilled, // of many documents some were written
} // some of many documents were written

// outcomeOf derives the outcome of a write from its error. whole says that a fence, if it was one,
// refused the write as a whole.
func outcomeOf(err error, whole bool) outcome {
	var server mongo.ServerError
	var bulk mongo.BulkWriteException
	var write mongo.WriteException
	var many mongo.ClientBulkWriteException // not a ServerError, and without its cause's labels
	isServer := errors.As(err, &server)
	labelled := func(label string) bool { return isServer && server.HasErrorLabel(label) }
	switch {
	case err == nil:
		return done
	case errors.Is(err, ErrMoved):
		return refused
	// The labels come first: the codes below also occur inside transactions.
	case labelled("UnknownTransactionCommitResult"):
		return unknown
	case labelled("TransientTransactionError"):
		return undone
	// A client bulk write spans collections, so its error does not show what was written.
	case errors.As(err, &many):
		return unknown
	case errors.As(err, &bulk):
		return bulkOutcome(bulk, whole)
	case errors.As(err, &write) && write.WriteConcernError != nil:
		return unknown // written here, but maybe not by a majority
	case fenced(err) && whole:
		return refused
	case fenced(err):
		return torn
	// The server vouches that nothing was written, even for a code below.
	case labelled("NoWritesPerformed"):
		return failed
	case errors.Is(err, context.Canceled), mongo.IsNetworkError(err), mongo.IsTimeout(err), labelled("RetryableWriteError"), labelled("NetworkError"):
		return unknown
	case isServer && slices.ContainsFunc(unknownCodes, server.HasErrorCode):
		return unknown
	}
	return failed
}

// fenced reports whether a server refused a write with the error of a fenced collection.
func fenced(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(fenceCodes, server.HasErrorCode)
}

// bulkOutcome is outcomeOf for a bulk write.
func bulkOutcome(bulk mongo.BulkWriteException, whole bool) outcome {
	switch {
	case bulk.WriteConcernError != nil, bulk.HasErrorLabel("RetryableWriteError"):
		return unknown
	// A mongos reports a shard that it lost as the error of an operation.
	case slices.ContainsFunc(unknownCodes, bulk.HasErrorCode):
		return unknown
	case !fenced(bulk):
		return failed
	case whole:
		return refused
	}
	return unknown
}

// mayHaveMoved reports whether a move of the data can be the cause of a read's error.
func mayHaveMoved(err error) bool {
	var server mongo.ServerError
	return errors.Is(err, ErrMoved) || errors.As(err, &server) && slices.ContainsFunc(readCodes, server.HasErrorCode)
}

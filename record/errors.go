package record

import (
	"errors"
	"fmt"
)

// Errors that every backend returns (wrapped) for the same situations.
var (
	// ErrFenced: the command's token is no longer valid and this attempt had no
	// effect. Ask the Deployment for the current token and read the source again;
	// never resend an old image under a new token.
	ErrFenced = errors.New("token is fenced: the kind has moved")
	// ErrUnknown: the command may or may not have had an effect. Resolve it by reading.
	ErrUnknown = errors.New("outcome is unknown")
	// ErrNotFound: Client.Get of, or a Mutation that needs, a record that is absent.
	ErrNotFound = errors.New("record not found")
	// ErrExists: a Mutation that needs absence met a record.
	ErrExists = errors.New("record exists already")
	// ErrMismatch: the record is there, but not as the Mutation's Match requires.
	ErrMismatch = errors.New("record has changed")
	// ErrConflict: a unique index other than that of the key refused the write.
	ErrConflict error = refused("unique index refuses the record")
	// ErrReserved: a document of a managed kind has the field ReservedField, in which the
	// guard is kept, or that of another ReservedError. Documents of fixed-name kinds may have it.
	ErrReserved error = ReservedError{ReservedField}
	// ErrRefused: what a call wants written is refused for good, and nothing was written. It is
	// refused again however often it is sent as it is: something else has to be written.
	// ErrConflict, ErrReserved, ErrLongKey and ErrOversize are such errors, too, and Refuse makes
	// one of any.
	ErrRefused = errors.New("the database does not take what is to be written")
	// ErrOversize: a document, or all that one call writes, is more than the database takes.
	ErrOversize error = refused("more is to be written than the database takes at once")
	// ErrUnreadable: what is stored of a record is none that was written. A call that had to read
	// it has written nothing. A person must look; other records can be read.
	ErrUnreadable = errors.New("the record cannot be read")
	// ErrNoKey: this process does not have the key that a record is encrypted with, or is to be.
	// Nothing was written. An operator must add the key.
	ErrNoKey = errors.New("the key is not here")
	// ErrHistoryLost: the changes after the position are no longer there. Begin again at a
	// new position, and compare.
	ErrHistoryLost = errors.New("change history is lost")
	// ErrUnavailable: the database cannot be reached or has no primary now. This is no sign
	// of a wrong configuration; the same call may succeed later. Open and Check of a
	// backend return it, for callers that decide between waiting and giving up.
	ErrUnavailable = errors.New("database is not available")
	// ErrTooLarge: what a read selects is more than its Bytes. Select less.
	ErrTooLarge = errors.New("more is selected than may be read at once")
	// ErrBroken: the changes ended in a way that no engine can follow (a drop, a
	// foreign rename). A person must look.
	ErrBroken = errors.New("change stream is broken")
	// ErrTaken is what Fence returns when something else was made under a kind's name in the
	// moment in which a failover had left that free. Give the attempt up: Unfence gives
	// the kind its name back, and has in it what was written to the other collection.
	ErrTaken = errors.New("the name of the kind was taken in a failover")
)

// refused is an error that is an ErrRefused.
type refused string

func (e refused) Error() string      { return string(e) }
func (refused) Is(target error) bool { return target == ErrRefused }

// ReservedError is an ErrReserved, by the name of the field.
type ReservedError struct{ Field string }

func (e ReservedError) Error() string {
	return "the document has a field \"" + e.Field + "\", which is reserved in managed kinds: give the field another name"
}

// Is makes every one an ErrReserved, which is an ErrRefused.
func (ReservedError) Is(target error) bool { return target == ErrReserved || target == ErrRefused }

// Refuse makes err, of which nothing was written, an ErrRefused. Its text stays.
func Refuse(err error) error {
	if err == nil || errors.Is(err, ErrRefused) {
		return err
	}
	return refusedError{err}
}

type refusedError struct{ error }

func (e refusedError) Unwrap() error      { return e.error }
func (refusedError) Is(target error) bool { return target == ErrRefused }

// UnsupportedError refuses, beforehand, what cannot be served safely.
type UnsupportedError struct {
	What   string // the thing refused: "collection bbs.events", "server at 127.0.0.1:27017"
	Reason string // why, and what to do
	Fence  bool   // it is the view that a fence left under the collection's old name
	// Retired: it is the view that is left of a version that was completed. A fence of class view
	// takes its name when the kind is opened.
	Retired bool
}

func (e *UnsupportedError) Error() string { return fmt.Sprintf("%s: %s", e.What, e.Reason) }

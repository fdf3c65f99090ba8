package record

import (
	"errors"
	"fmt"
)

// Errors that every backend returns (wrapped) in the same situations.
var (
	// ErrFenced means that the command's token is no longer valid, and this attempt had no effect.
	// Ask the Deployment for the current token and read the source again. Never resend an old image
	// under a new token.
	ErrFenced = errors.New("token is fenced: the kind has moved")
	// ErrUnknown means that the command may or may not have had an effect. Read to find out.
	ErrUnknown = errors.New("outcome is unknown")
	// ErrNotFound means that Client.Get found no record, or a Mutation needs a record that is
	// absent.
	ErrNotFound = errors.New("record not found")
	// ErrExists means that a Mutation that requires absence found a record.
	ErrExists = errors.New("record exists already")
	// ErrMismatch means that the record exists, but differs from the Mutation's Match.
	ErrMismatch = errors.New("record has changed")
	// ErrConflict means that a unique index other than the key's refused the write.
	ErrConflict error = refused("unique index refuses the record")
	// ErrReserved means that a document of a managed kind has ReservedField, which holds the guard,
	// or the field of another ReservedError. Documents of fixed-name kinds may have these fields.
	ErrReserved error = ReservedError{ReservedField}
	// ErrRefused means that the database refuses this write permanently, and wrote nothing. A retry
	// with the same content fails again; write something else. ErrConflict, ErrReserved, ErrLongKey
	// and ErrOversize are such errors, and Refuse turns any error into one.
	ErrRefused = errors.New("the database does not take what is to be written")
	// ErrOversize means that a document, or one call as a whole, is larger than the database
	// accepts.
	ErrOversize error = refused("more is to be written than the database takes at once")
	// ErrUnreadable means that the stored record differs from anything that was written. A call
	// that had to read the record wrote nothing. An operator must look at it. Other records stay
	// readable.
	ErrUnreadable = errors.New("the record cannot be read")
	// ErrNoKey means that this process lacks the key that decrypts the record, or that must encrypt
	// it. Nothing was written. An operator must add the key.
	ErrNoKey = errors.New("the key is not here")
	// ErrHistoryLost means that the database no longer has the changes after the position. Begin
	// again at a new position, and compare everything.
	ErrHistoryLost = errors.New("change history is lost")
	// ErrUnavailable means that the database is unreachable or has no primary now. The
	// configuration may be correct, and the same call may succeed later. Open and Check of a
	// backend return this error, so that callers can decide between waiting and giving up.
	ErrUnavailable = errors.New("database is not available")
	// ErrTooLarge means that the selected records exceed the Bytes of the read. Select less.
	ErrTooLarge = errors.New("more is selected than may be read at once")
	// ErrBroken means that the stream of changes ended in a way that no engine can follow, such as
	// a drop or a foreign rename. An operator must look.
	ErrBroken = errors.New("change stream is broken")
	// ErrLapsed means that a fence that has to be in force (Fence.Standing) was not. Writes may have
	// passed it. Give up the attempt: the next one takes them along.
	ErrLapsed = errors.New("the fence was removed, and writes may have passed it")
	// ErrTaken means that Fence found another collection under a kind's name. The database had ended
	// the fence halfway, and a client created the collection under the free name. Give up the attempt.
	// Unfence gives the kind its name back and moves the documents of the other collection into it.
	ErrTaken = errors.New("a client took the name of the kind while its fence was only half set")
)

// refused is an error with a fixed text that matches ErrRefused.
type refused string

func (e refused) Error() string      { return string(e) }
func (refused) Is(target error) bool { return target == ErrRefused }

// ReservedError is an ErrReserved with the name of the reserved field.
type ReservedError struct{ Field string }

func (e ReservedError) Error() string {
	return "the document has a field \"" + e.Field + "\", which is reserved in managed kinds: give the field another name"
}

// Is makes each ReservedError match ErrReserved and ErrRefused.
func (ReservedError) Is(target error) bool { return target == ErrReserved || target == ErrRefused }

// Refuse wraps err so that it matches ErrRefused. The text stays the same. The caller must know
// that nothing was written.
func Refuse(err error) error {
	if err == nil || errors.Is(err, ErrRefused) {
		return err
	}
	return refusedError{err}
}

type refusedError struct{ error }

func (e refusedError) Unwrap() error      { return e.error }
func (refusedError) Is(target error) bool { return target == ErrRefused }

// UnsupportedError reports in advance that something cannot be served safely.
type UnsupportedError struct {
	What   string // the refused thing: "collection bbs.events", "server at 127.0.0.1:27017"
	Reason string // the cause, and the remedy
	Fence  bool   // a fence left this view under the collection's old name
	// Retired means that this view is left over from a completed version. A fence of class view
	// takes its name when the kind opens.
	Retired bool
}

func (e *UnsupportedError) Error() string { return fmt.Sprintf("%s: %s", e.What, e.Reason) }

package transform

import (
	"errors"
	"runtime/debug"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Conceal returns err with a text that contains no value of the records, or nil for nil. All errors
// of transformers pass through it, because the author of a transformer may quote its input. The
// errors are stored where people without access to the data can read them.
func Conceal(err error, groups ...Group) error {
	if err == nil {
		return nil
	}
	var docs []bson.Raw
	for _, g := range groups {
		for _, r := range g.Records {
			docs = append(docs, r.Doc)
		}
	}
	text, stack := err.Error(), ""
	// Keep the stack of a panic: it contains no data, and the author needs it.
	var p *panicError
	if errors.As(err, &p) {
		if i := strings.LastIndex(text, p.stack); i >= 0 {
			text, stack = text[:i], text[i:]
		}
	}
	return &record.ConcealedError{Err: err, Text: record.Conceal(text, docs...) + stack}
}

// panicError is a panic of a transformer.
type panicError struct {
	text  string
	stack string
}

func (e *panicError) Error() string { return "panic: " + e.text + "\n" + e.stack }

// errGoexit is the error of a function that calls runtime.Goexit.
var errGoexit = errors.New("runtime.Goexit was called")

// Isolated runs f on its own goroutine, so that f cannot end the caller's goroutine. A panic (with
// its stack) and runtime.Goexit become errors. A stack overflow and exhausted memory still end the
// process, because Go cannot recover from them.
func Isolated[T any](f func() (T, error)) (T, error) {
	type answer struct {
		out T
		err error
	}
	// Buffered, so that the goroutine always ends.
	done := make(chan answer, 1)
	go func() {
		// errGoexit stays the answer if f ends the goroutine without a panic.
		a := answer{err: errGoexit}
		// Runs after a return, a panic and Goexit alike, so done always gets an answer.
		defer func() {
			if p := recover(); p != nil {
				a = answer{err: panicked(p, debug.Stack())}
			}
			done <- a
		}()
		var out T
		var err error
		out, err = f()
		a = answer{out, err}
	}()
	a := <-done
	return a.out, a.err
}

// RecordError reports why one record cannot be transformed. A lens returns it
// for every error that depends on the record's content, except for a malformed document.
type RecordError struct {
	// Operation is the operation as the lens writes it, such as "convert size from int to long". It
	// is "complement" if the target's record is the cause.
	Operation string
	Field     string // dotted path; a list item has its number, from 0
	Reason    string // continues the sentence after Field: "is of type string"
	Err       error  // the cause of Reason; may be nil
}

func (e *RecordError) Error() string {
	return e.Operation + ": " + strings.TrimSpace(e.Field+" "+e.Reason)
}

func (e *RecordError) Unwrap() error { return e.Err }

package transform

import (
	"errors"
	"runtime/debug"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Conceal returns err with a text that shows no value of the records; nil for nil. Errors of
// transformers go through here before anybody else sees them: they are stored where people
// read who may not read the data, and the author of a transformer quotes what it was given.
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

// errGoexit is what becomes of a call of runtime.Goexit within f.
var errGoexit = errors.New("runtime.Goexit was called")

// Isolated runs f on a goroutine of its own, so that code which ends its goroutine does
// not end the one that asked. A panic, with its stack, and runtime.Goexit become errors.
// A stack overflow and want of memory end the process: Go lets nobody recover from them.
func Isolated[T any](f func() (T, error)) (T, error) {
	type answer struct {
		out T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		a := answer{err: errGoexit}
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

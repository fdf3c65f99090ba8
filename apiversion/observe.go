package apiversion

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Translated is the kind of message that an Event reports.
type Translated string

// Kinds of translated messages.
const (
	Request  Translated = "request"
	Response Translated = "response" // or a message of a stream
	Record   Translated = "record"   // a resource in a request or response
)

// Event reports one translation. Observers must neither change nor keep the messages.
type Event struct {
	What      Translated
	Procedure string // the procedure that the client called
	Served    string // the procedure that serves it; empty if discontinued
	Caller    string
	// Old is in the client's version, New in the version that serves the call. A message that does
	// not exist is nil. After an error at least one of them is.
	Old, New proto.Message
	// Err is the error of the translation, or the error that the client gets instead of a response.
	// After a panic of a converter its text names the message type. The value of the panic is not in
	// the text, because it may contain record data.
	Err error
}

// Observer sees every translation, for example for an audit log. The handler calls it in the
// request's goroutine. Its errors and panics go to Options.ObserverFailed and never change the
// response.
type Observer interface {
	Observe(ctx context.Context, e Event) error
}

func notify(ctx context.Context, observers []Observer, failed func(error), e Event) {
	for _, o := range observers {
		if err := observe(ctx, o, e); err != nil && failed != nil {
			failed(fmt.Errorf("observer of %s: %w", e.Procedure, err))
		}
	}
}

// observe calls one observer and turns its panic into an error, so that the request goes on.
func observe(ctx context.Context, o Observer, e Event) (err error) {
	// A faulty observer must not fail the request that it observes.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return o.Observe(ctx, e)
}

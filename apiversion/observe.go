package apiversion

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Translated is what an Event is about.
type Translated string

// What is translated.
const (
	Request  Translated = "request"
	Response Translated = "response" // or a message of a stream
	Record   Translated = "record"   // a resource in a request or response
)

// Event is one translation. The messages must not be changed or kept.
type Event struct {
	What      Translated
	Procedure string // that was called
	Served    string // the procedure that serves it; empty for one that is discontinued
	Caller    string
	// Old is in the version that the client speaks, New in the one that serves it. What
	// there is not is nil: after an error, one of them.
	Old, New proto.Message
	// Err is of the translation, or what the client gets instead of a response. Of a
	// converter that panicked it wraps an *inprocess.PanicError.
	Err error
}

// Observer sees everything that is translated, for audit. It is called in the request's
// goroutine. Its errors and panics go to Options.ObserverFailed and never change what
// the client gets.
type Observer interface {
	Observe(ctx context.Context, e Event) error
}

// ObserverFunc is a function as Observer.
type ObserverFunc func(ctx context.Context, e Event) error

var _ Observer = ObserverFunc(nil)

// Observe calls the function.
func (f ObserverFunc) Observe(ctx context.Context, e Event) error { return f(ctx, e) }

func notify(ctx context.Context, observers []Observer, failed func(error), e Event) {
	for _, o := range observers {
		if err := observe(ctx, o, e); err != nil && failed != nil {
			failed(fmt.Errorf("observer of %s: %w", e.Procedure, err))
		}
	}
}

func observe(ctx context.Context, o Observer, e Event) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return o.Observe(ctx, e)
}

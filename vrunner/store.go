package vrunner

import (
	"context"

	"dbcontroller.dev/record"
)

// Store is one version's namespace for handlers: a View, or another version shown as one (Over).
// Errors come from package record, such as record.ErrNotFound.
type Store interface {
	// Get returns the live record of a kind with the name key, or record.ErrNotFound.
	Get(ctx context.Context, kind, key string) (record.Record, error)
	// List returns the records whose names begin with prefix and come after the name after, in name
	// order. A limit of 0 means 1000.
	List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error)
	// Write makes all mutations or none.
	Write(ctx context.Context, ms []record.Mutation) error
	// Changes subscribes to kinds. It delivers every change that happens after it returns.
	Changes(ctx context.Context, kinds ...string) (Subscription, error)
}

// Subscription delivers dirty records. One goroutine at a time may call Next. The caller must Close
// it.
type Subscription interface {
	// Next waits until records are dirty and returns all of them, each once. After ErrLost the
	// caller lists again and then continues with Next. When ctx ends, Next returns its cause.
	Next(ctx context.Context) ([]Dirty, error)
	// Close ends the subscription.
	Close()
}

// BatchStore is a Store that reads several records with one command, as a View does. An adapter
// uses the ability if its store has it.
type BatchStore interface {
	Store
	// Select returns the selected live records from one snapshot, in no particular order. They are
	// as recent as Get or, with asList, as recent as List.
	Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error)
	// ListNames returns the names of the records that List would return, without reading the
	// records. It may include names of deleted records. Fewer than limit names mean that there are
	// no more.
	ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error)
}

// SelectStore is a Store that reads several records by name with one command, as a View and an
// adapted store do.
type SelectStore interface {
	Store
	// Select returns the selected live records, in no particular order, all from one snapshot. An
	// adapted store over a Store without Select reads each group at a moment of its own. It may refuse
	// a selector with a prefix, with a *record.UnsupportedError.
	Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error)
}

var _ BatchStore = (*View)(nil)

// StoreOf returns a view as a Store. A nil view gives a nil Store.
func StoreOf(v *View) Store {
	// A nil *View inside an interface would not equal nil.
	if v == nil {
		return nil
	}
	return v
}

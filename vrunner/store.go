package vrunner

import (
	"context"

	"dbcontroller.dev/record"
)

// Store is one version's namespace as handlers need it: a View, or another version's shown as
// one (Over). record.ErrNotFound and its siblings report what happened.
type Store interface {
	Get(ctx context.Context, kind, key string) (record.Record, error)
	// List returns records in name order whose name begins with prefix and comes after
	// after. limit 0 means 1000.
	List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error)
	// Write makes all mutations or none.
	Write(ctx context.Context, ms []record.Mutation) error
	// Changes returns which records changed after it returned.
	Changes(ctx context.Context, kinds ...string) (Subscription, error)
}

// Subscription returns what is dirty. One goroutine at a time may call Next; it must be
// closed.
type Subscription interface {
	Next(ctx context.Context) ([]Dirty, error)
	Close()
}

// BatchStore is a Store that reads much with one command, as a View does. An adapter takes it
// where it is there.
type BatchStore interface {
	Store
	// Select returns the live records selected, in no particular order, all as they were at one
	// moment: as recent as Get or, as a list, as List.
	Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error)
	// ListNames returns the names of what List would return, without looking at the records:
	// some may be of records that were deleted. Fewer than limit mean that there are no more.
	ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error)
}

var _ BatchStore = (*View)(nil)

// StoreOf is a view as a Store; nil stays nil.
func StoreOf(v *View) Store {
	if v == nil {
		return nil
	}
	return v
}

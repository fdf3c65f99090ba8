package controller

import (
	"context"

	"go.uber.org/zap"

	"dbcontroller/config"
	"dbcontroller/record"
)

// Backend opens the databases of a controller. It is all that a controller knows of where
// they are: MongoDB in the program, memory in a simulation.
type Backend interface {
	// Connect makes databases known, by version. None is opened before something needs it.
	// The caller calls disconnect when nothing uses them any more.
	Connect(cfg config.Config, o Opening) (databases map[string]Database, disconnect func(context.Context))
	// Unavailable reports whether an error of a database, of whatever command, passes by
	// itself: the same command may succeed later.
	Unavailable(err error) bool
}

// Opening says how databases are opened.
type Opening struct {
	// Check is asked of a database that has answered, before anything else uses it. An error
	// that is record.ErrUnavailable is tried again, another one refuses the database.
	Check func(ctx context.Context, version string, db record.Namespace) error
	// Quiet: nobody else on the servers may feel what is done there.
	Quiet bool
	Log   *zap.Logger
}

// Database is one database of a controller. Its commands open it where it is not open yet,
// and fail with the reason where it cannot be.
type Database interface {
	Space
	// Open makes an attempt where there was none lately, and otherwise returns why the latest
	// one failed.
	Open(ctx context.Context) error
	// Opened reports whether it is open.
	Opened() bool
	// Problem returns why it is not open, as far as somebody tried; nil if it is open, or
	// nobody needed it yet.
	Problem() error
	// Keep tries to open it until it is open or ctx ends, whatever the reason.
	Keep(ctx context.Context) error
	// Quietly returns the same database, used so that nobody else on its server feels it.
	Quietly() Space
}

// Space is a namespace that can be rid of scratch collections by the beginning of their
// names, also of those that a process that died has left.
type Space interface {
	record.Namespace
	Sweep(ctx context.Context, prefix string) error
}

package blevesink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strings"
	"syscall"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
)

// reading calls do, which reads from the index. A panic of the library becomes an error.
func (x *Index) reading(ctx context.Context, do func() error) error {
	if err := x.failure(); err != nil {
		return err
	}
	err := recovered(do)
	var unsupported *record.UnsupportedError
	var broad *record.SearchTooBroadError
	if err == nil || ctx.Err() != nil || errors.As(err, &unsupported) || errors.As(err, &broad) {
		return err
	}
	// A write that failed meanwhile explains the error better.
	if failed := x.failure(); failed != nil {
		return failed
	}
	return fmt.Errorf("%w: %w", sink.ErrUnread, err)
}

// writing calls do, which writes into the index. After an error the library may be in any state, and
// may panic on its next use. So the index then refuses everything until it is opened again.
func (x *Index) writing(ctx context.Context, do func() error) error {
	if err := x.failure(); err != nil {
		return err
	}
	err := recovered(do)
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err // a caller that gives up says nothing about the index
	}
	cause := sink.ErrReopen
	if damage(err) {
		cause = sink.ErrDamaged
	}
	err = fmt.Errorf("%w: %w", cause, err)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed = err
	return err
}

// failure returns the error of the write that ended the use of the index.
func (x *Index) failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failed
}

// recovered turns a panic of do into an error, also one of a file that became shorter than the
// memory that maps it.
func recovered(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic of the search index: %v", p)
		}
	}()
	return do()
}

// elsewhere are the errors of a machine that has no room or gives no access. The files may be whole.
var elsewhere = []error{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EACCES, syscall.EPERM,
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, fs.ErrPermission,
}

// damage reports whether damaged files may be the cause of an error.
func damage(err error) bool {
	for _, other := range elsewhere {
		// The libraries keep only the text of some errors.
		if errors.Is(err, other) || strings.Contains(err.Error(), other.Error()) {
			return false
		}
	}
	return true
}

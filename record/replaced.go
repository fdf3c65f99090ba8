package record

import "fmt"

// ReplacedError ends a stream where an application's collection was renamed, dropped, replaced or
// resharded under the own name of a fixed-name kind. It matches ErrBroken, for callers that cannot
// switch to the new collection of that name and copy it again.
type ReplacedError struct {
	Kind string
	What string // for people: the event, the collection, and the remedy if any
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("the collection of kind %s: %s", e.Kind, e.What)
}

// Is makes the error match ErrBroken.
func (e *ReplacedError) Is(target error) bool { return target == ErrBroken }

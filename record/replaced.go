package record

import "fmt"

// ReplacedError ends a stream at a place where an application's collection was renamed, dropped,
// replaced or resharded under the own name of a fixed-name kind. It is an ErrBroken for a caller
// that cannot take the collection that bears the name now, and copy it anew.
type ReplacedError struct {
	Kind string
	What string // for people: what happened to which collection, and what to do if anything
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("the collection of kind %s: %s", e.Kind, e.What)
}

// Is makes it an ErrBroken.
func (e *ReplacedError) Is(target error) bool { return target == ErrBroken }

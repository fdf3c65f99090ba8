package identity

import (
	"context"
	"errors"

	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// Notes store in a namespace's mark which keys encrypt its records.
type Notes struct {
	db    record.Marker
	owner record.Owner
}

var _ sealed.Notes = Notes{}

// NotesOf returns the notes of an owner's namespace in a database.
func NotesOf(db record.Marker, owner record.Owner) Notes { return Notes{db, owner} }

// Whose returns the owner of the namespace, for messages.
func (n Notes) Whose() string { return n.owner.String() }

// State reads the stored state of the keys. A namespace without a mark is New.
func (n Notes) State(ctx context.Context) (sealed.State, error) {
	m, _, err := readMark(ctx, n.db, n.owner)
	return stateOf(m), err
}

func stateOf(m *Mark) sealed.State {
	switch {
	case m == nil:
		return sealed.State{New: true}
	case m.Keys == nil:
		return sealed.State{}
	default:
		return *m.Keys
	}
}

// Change edits the stored state of the keys. The namespace must have a mark, or Change fails.
func (n Notes) Change(ctx context.Context, change func(*sealed.State) (bool, error)) error {
	return put(ctx, n.db, n.owner, func(m *Mark) (bool, error) {
		s := stateOf(m)
		if m.rev == 0 {
			s = sealed.State{New: true}
		}
		write, err := change(&s)
		if err != nil || !write {
			return false, err
		}
		// change may still refuse or skip; only a write needs the mark.
		if m.rev == 0 {
			return false, errors.New("the namespace has no mark")
		}
		m.Keys = &s
		return true, nil
	})
}

package sealed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// First returns the State of a new namespace, if its first record cannot have been written yet. The
// namespace is then encrypted from its first record on, and the State lists the readable fields of
// the kinds. nil: it is not encrypted. Store the State together with the very first data about the
// namespace. Later, records may exist already.
func (s *Sealer) First(kinds []record.KindSpec) (*State, error) {
	k := s.keys()
	if k.active == Off {
		return nil, nil //nolint:nilnil // no keys: same result as without encryption
	}
	// No record exists, so the promise holds from the start.
	st := State{Key: k.active, Whole: true}
	st.add(k, k.active)
	if _, err := st.show(kinds); err != nil {
		return nil, err
	}
	return &st, st.sign(k, s.notes.Whose())
}

// Begin stores which fields of kinds stay readable, before their first write. It does so even if
// nothing is encrypted yet and this process has a key, because a rotation that begins meanwhile may
// not know these kinds.
func (s *Sealer) Begin(ctx context.Context, kinds []record.KindSpec) error {
	k := s.keys()
	return s.change(ctx, func(st *State) (bool, error) {
		if st.New {
			return false, nil // only scratch kinds exist yet
		}
		if *st = st.normal(k); !st.encrypts() && k.active == Off {
			return false, nil
		}
		return st.show(kinds)
	})
}

// show adds the fields that the indexes of kinds read to the readable fields.
func (s *State) show(kinds []record.KindSpec) (changed bool, err error) {
	// Readers may share the map, so change a copy.
	next := maps.Clone(s.Clear)
	if next == nil {
		next = map[string][]string{}
	}
	for _, kind := range kinds {
		if kind.Fixed {
			continue
		}
		fields, err := fieldsOf(kind)
		if err != nil {
			return false, err
		}
		all := slices.Clone(next[kind.Name])
		for _, f := range fields {
			// Fields are only added: existing records show the earlier ones.
			if !slices.Contains(all, f) {
				all, changed = append(all, f), true
			}
		}
		if len(all) > 0 {
			next[kind.Name] = all
		}
	}
	s.Clear = next
	return changed, nil
}

// ErrOvertaken means that another run came first. Read the State to see which one.
var ErrOvertaken = errors.New("records are brought under a key by another run")

// Turn makes all processes write under a new key and withdraws the promise for the previous key.
// Afterwards the caller calls Namespace.Hold, which keeps out writers with the previous key. Then a
// pass of this run brings all records under the new key. That pass must begin after Hold. At the
// end the caller calls Finish. A second Turn of the same run changes nothing.
//
// was is the State.Run that the caller read before it decided to go on. If another run came in
// between, Turn returns ErrOvertaken: a process that paused must not undo the finished work of
// others.
func (s *Sealer) Turn(ctx context.Context, was, run, key string, kinds []record.KindSpec) error {
	k := s.keys()
	return s.change(ctx, func(st *State) (bool, error) {
		*st = st.normal(k)
		if err := st.lacks(k); err != nil {
			return false, err
		}
		switch st.Run {
		case run:
			return false, nil
		case was:
		default:
			return false, ErrOvertaken
		}
		// Former keys stay in Under: their records exist until the pass is over.
		st.Key, st.Whole, st.Run, st.Missed = key, false, run, false
		st.add(k, key)
		if key == Off {
			return true, nil
		}
		_, err := st.show(kinds)
		return true, err
	})
}

// Finish stores that every record is under the key of the run. If a stray was admitted since the
// run began, another run must follow, and Finish prepares it as after any other stray.
func (s *Sealer) Finish(ctx context.Context, run string) error {
	return s.change(ctx, func(st *State) (bool, error) {
		if st.Run != run || st.Whole {
			return false, nil
		}
		// No record is under another key any more.
		st.Under = map[string]string{st.Key: st.Under[st.Key]}
		// The pass may have been past the stray's record when the stray was found.
		if st.Missed {
			st.Run, st.Missed = strayRun(), false
			return true, nil
		}
		st.Strays, st.Whole = nil, true
		// Plain records show all fields.
		if st.Key == Off {
			st.Clear = nil
		}
		return true, nil
	})
}

// Admit stores that a record exists under a key that the State excludes. The promise does not hold
// until a further run is over. Admitting Off requires an operator, who answers for the plain
// records.
func (s *Sealer) Admit(ctx context.Context, name string) error {
	k := s.keys()
	return s.change(ctx, func(st *State) (bool, error) {
		if *st = st.normal(k); st.allows(name) {
			return false, nil
		}
		st.Strays = append(slices.Clone(st.Strays), name)
		if st.Whole {
			st.Whole, st.Run = false, strayRun()
		} else { // do not change the Run of an unfinished run, because its pass depends on it
			st.Missed = true
		}
		return true, nil
	})
}

// strayRun returns the value of State.Run between a stray and the run that re-encrypts it.
func strayRun() string { return "stray-" + strings.ToLower(rand.Text()[:8]) }

func (s *Sealer) change(ctx context.Context, change func(*State) (bool, error)) error {
	err := s.notes.Change(ctx, func(st *State) (bool, error) {
		// Never build on a State that this process does not accept.
		if err := s.accepts(*st); err != nil {
			return false, err
		}
		write, err := change(st)
		if err != nil || !write {
			return false, err
		}
		return true, st.sign(s.keys(), s.notes.Whose())
	})
	if err != nil {
		return fmt.Errorf("note which key records are under: %w", err)
	}
	// Let this process use its own change at once.
	_, err = s.look(ctx, 0)
	return err
}

// Accept signs the stored State, whoever wrote it. An operator calls it after looking at the State.
// It is also called where the configuration demands no encryption. check is called with the State
// first, and an error of it ends the call.
func (s *Sealer) Accept(ctx context.Context, check func(State) error) error {
	k := s.keys()
	err := s.notes.Change(ctx, func(st *State) (bool, error) {
		if st.New {
			return false, nil
		}
		// Verify the State as it is stored, before normal fills in defaults.
		seen := *st
		*st = st.normal(k)
		if err := check(*st); err != nil {
			return false, err
		}
		// A process must not sign for keys that it does not have.
		if err := st.lacks(k); err != nil {
			return false, err
		}
		if seen.proven(k, s.notes.Whose()) {
			return false, nil
		}
		return true, st.sign(k, s.notes.Whose())
	})
	if err == nil {
		_, err = s.look(ctx, 0)
	}
	if err != nil {
		return fmt.Errorf("accept the state of keys: %w", err)
	}
	return nil
}

// Noted returns the stored State, accepted or not. proven reports whether its Seal is valid under a
// key of this process.
func (s *Sealer) Noted(ctx context.Context) (st State, proven bool, err error) {
	if st, err = s.notes.State(ctx); err != nil {
		return st, false, fmt.Errorf("read the keys of the records: %w", err)
	}
	k := s.keys()
	return st.normal(k), st.proven(k, s.notes.Whose()), nil
}

// Same reports whether two States have the same content, whoever wrote them.
func (s State) Same(o State) bool {
	a, err := s.sum(nil, "", "")
	b, other := o.sum(nil, "", "")
	return err == nil && other == nil && string(a) == string(b)
}

// Adopt signs a State without encrypted records, if the configuration agrees (active: off). That is
// the first step to encrypt a namespace with existing records.
func (s *Sealer) Adopt(ctx context.Context) (adopted bool, err error) {
	k := s.keys()
	st, err := s.look(ctx, lookEvery)
	if err != nil || k.active != Off || len(k.named) == 0 || st.New || st.encrypts() || st.proven(k, s.notes.Whose()) {
		return false, err
	}
	err = s.Accept(ctx, func(now State) error {
		if now.encrypts() {
			return ErrOvertaken // another process turned encryption on
		}
		return nil
	})
	return err == nil, err
}

// Again returns a stored document re-encrypted with the key of a run, or nil if nothing has to
// change. ErrOvertaken: the present State is not the one of that run. Otherwise a record under an
// outdated key would count as done.
func (s *Sealer) Again(ctx context.Context, run string, tok record.Token, r record.Record) (bson.Raw, error) {
	w, err := s.writing(ctx)
	// Another run changes the key, so this pass must not count the record as done.
	if err == nil && w.state.Run != run {
		err = ErrOvertaken
	}
	if err != nil {
		return nil, err
	}
	plain, err := s.openBy(w.state, tok, r)
	if err != nil || w.current(tok.Kind, r.Doc, plain.Doc) {
		return nil, err
	}
	return w.seal(tok, r.Key, plain.Doc)
}

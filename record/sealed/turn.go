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

// First is the State that a namespace begins with whose first record nobody can have written: that
// it is encrypted from there on, and which fields of kinds stay readable. Nil: it is not. It is to
// be noted with the first that is noted of the namespace at all: later there may be records.
func (s *Sealer) First(kinds []record.KindSpec) (*State, error) {
	k := s.keys()
	if k.active == Off {
		return nil, nil //nolint:nilnil // as those have it that know of no keys
	}
	st := State{Key: k.active, Whole: true}
	st.add(k, k.active)
	if _, err := st.show(kinds); err != nil {
		return nil, err
	}
	return &st, st.sign(k, s.notes.Whose())
}

// Begin notes, before kinds of a namespace are written for the first time, which of their fields
// stay readable: also where nothing is encrypted yet and this process has a key, for a rotation
// that begins meanwhile may not have seen these kinds.
func (s *Sealer) Begin(ctx context.Context, kinds []record.KindSpec) error {
	k := s.keys()
	return s.change(ctx, func(st *State) (bool, error) {
		if st.New {
			return false, nil // nothing but a trial
		}
		if *st = st.normal(k); !st.encrypts() && k.active == Off {
			return false, nil
		}
		return st.show(kinds)
	})
}

// show adds what the indexes of kinds read to what stays readable.
func (s *State) show(kinds []record.KindSpec) (changed bool, err error) {
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

// ErrOvertaken: another run came first. Look which one goes on.
var ErrOvertaken = errors.New("records are brought under a key by another run")

// Turn has everybody write under a key from now on, and takes the promise of the key before back.
// Namespace.Hold keeps out who still writes under that one; once all records are under the new key,
// in a pass of the run of that id which began after Hold, the caller calls Finish. The second time
// it changes nothing.
//
// was is State.Run as the caller read it before it made sure that its run goes on. Where another
// one came in between it is ErrOvertaken: who slept must not take back what others finished since.
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
		st.Key, st.Whole, st.Run, st.Missed = key, false, run, false
		st.add(k, key)
		if key == Off {
			return true, nil
		}
		_, err := st.show(kinds)
		return true, err
	})
}

// Finish notes that every record is under the key that the run was for. Where a stray was admitted
// since the run began another run is needed for that, and begins as after any other stray.
func (s *Sealer) Finish(ctx context.Context, run string) error {
	return s.change(ctx, func(st *State) (bool, error) {
		if st.Run != run || st.Whole {
			return false, nil
		}
		st.Under = map[string]string{st.Key: st.Under[st.Key]}
		if st.Missed {
			st.Run, st.Missed = strayRun(), false
			return true, nil
		}
		st.Strays, st.Whole = nil, true
		if st.Key == Off {
			st.Clear = nil
		}
		return true, nil
	})
}

// Admit notes that there is a record under a key that none should be under: the promise does not
// hold, until a further run is over. Off is admitted for an operator alone, who answers for what is
// plain.
func (s *Sealer) Admit(ctx context.Context, name string) error {
	k := s.keys()
	return s.change(ctx, func(st *State) (bool, error) {
		if *st = st.normal(k); st.allows(name) {
			return false, nil
		}
		st.Strays = append(slices.Clone(st.Strays), name)
		if st.Whole {
			st.Whole, st.Run = false, strayRun()
		} else { // a run goes on, or one was ended: it must not be changed, since its pass goes by it
			st.Missed = true
		}
		return true, nil
	})
}

// strayRun is what State.Run is between a stray and the run that brings it under the key.
func strayRun() string { return "stray-" + strings.ToLower(rand.Text()[:8]) }

func (s *Sealer) change(ctx context.Context, change func(*State) (bool, error)) error {
	err := s.notes.Change(ctx, func(st *State) (bool, error) {
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
	_, err = s.look(ctx, 0)
	return err
}

// Accept vouches for the State as it is noted, no matter who wrote it: for an operator, who has
// looked at it, or where the configuration asks for no encryption. check is asked about it before.
func (s *Sealer) Accept(ctx context.Context, check func(State) error) error {
	k := s.keys()
	err := s.notes.Change(ctx, func(st *State) (bool, error) {
		if st.New {
			return false, nil
		}
		seen := *st
		*st = st.normal(k)
		if err := check(*st); err != nil {
			return false, err
		}
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

// Noted is the State as the database has it, whether it is accepted or not, and whether a process
// with a key that is here has vouched for it.
func (s *Sealer) Noted(ctx context.Context) (st State, proven bool, err error) {
	if st, err = s.notes.State(ctx); err != nil {
		return st, false, fmt.Errorf("read which key records are under: %w", err)
	}
	k := s.keys()
	return st.normal(k), st.proven(k, s.notes.Whose()), nil
}

// Same reports whether two States say the same, no matter who wrote them.
func (s State) Same(o State) bool {
	a, err := s.sum(nil, "", "")
	b, other := o.sum(nil, "", "")
	return err == nil && other == nil && string(a) == string(b)
}

// Adopt vouches for a State by which no record is encrypted, where the configuration says the same
// (active: off). That is the first step to encrypt a namespace that has records.
func (s *Sealer) Adopt(ctx context.Context) (adopted bool, err error) {
	k := s.keys()
	st, err := s.look(ctx, lookEvery)
	if err != nil || k.active != Off || len(k.named) == 0 || st.New || st.encrypts() || st.proven(k, s.notes.Whose()) {
		return false, err
	}
	err = s.Accept(ctx, func(now State) error {
		if now.encrypts() {
			return ErrOvertaken // others have turned encryption on
		}
		return nil
	})
	return err == nil, err
}

// Again returns a stored document as it is to be stored under the key of a run, or nil where it is
// so already. By a State from before or after that run it is ErrOvertaken: a record under the key
// of then would count as done.
func (s *Sealer) Again(ctx context.Context, run string, tok record.Token, r record.Record) (bson.Raw, error) {
	w, err := s.writing(ctx)
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

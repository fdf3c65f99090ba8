package sealed

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

// State is what a database holds of the keys of a namespace. The zero State is that of one
// that was never encrypted.
type State struct {
	// Key is what writers encrypt with; Off or empty: they do not.
	Key string `bson:"key"`
	// Under are all keys that records may be under, by name, with what distinguishes them from
	// others of the name. Off is among them where records may be plain.
	Under map[string]string `bson:"under"`
	// Whole promises that every record of a managed kind is under Key, and shows the fields of
	// Clear.
	Whole bool `bson:"whole"`
	// Run is the pass over all records after which Whole is true. It never is again what it was.
	Run string `bson:"run,omitempty"`
	// Strays are further keys that records were found under against the promise, or Off where an
	// operator has said so. A process without them goes on, but for these records.
	Strays []string `bson:"strays,omitempty"`
	// Missed: a stray was admitted while the run went on, which may have been past its record.
	Missed bool `bson:"missed,omitempty"`
	// Clear are the top-level fields of each kind that stay readable, for its indexes.
	Clear map[string][]string `bson:"clear,omitempty"`
	// Count counts the writes of a sealed State.
	Count uint64 `bson:"count,omitempty"`
	// Seal proves who wrote all of this. Nil: nobody with a key did, or a former version.
	Seal *Seal `bson:"seal,omitempty"`
	// New: the namespace is not begun, so that there can be no State yet. What is tried in its
	// database before is under the active key of the process that tries it.
	New bool `bson:"-"`
}

// Notes is where the State of a namespace is kept: in the database itself, so that no process
// can have one without the other.
type Notes interface {
	// State returns what is noted, or the zero State.
	State(ctx context.Context) (State, error)
	// Change notes what change makes of the State, unless it returns false. It may be called
	// several times, when others write at the same time.
	Change(ctx context.Context, change func(*State) (bool, error)) error
	// Whose names the namespace and its deployment. A State of another one is not accepted.
	Whose() string
}

// normal is a State in which nothing is left to be understood.
func (s State) normal(k *Keys) State {
	if s.New {
		s = State{Key: k.active, New: true}
		for _, name := range k.Names() {
			s.add(k, name)
		}
		if k.active == Off { // otherwise who removes a mark would have plain records accepted
			s.add(k, Off)
		}
		return s
	}
	if s.Key == "" {
		s.Key = Off
	}
	if len(s.Under) == 0 {
		s.Under, s.Whole = map[string]string{Off: ""}, s.Key == Off
	}
	if s.Key != Off && !s.allows(s.Key) { // what everybody writes under is what records are under
		s.add(k, s.Key)
	}
	return s
}

// Promised is the key that every record is under, or Off; empty: there may be several.
func (s State) Promised() string {
	if s.Whole {
		return s.Key
	}
	return ""
}

// InUse are the names of the keys that records may be under, in order; Off is one.
func (s State) InUse() []string {
	return slices.Compact(slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(s.Under)), s.Strays...))))
}

// allows reports whether records may be under a key.
func (s State) allows(name string) bool {
	_, ok := s.Under[name]
	return ok || slices.Contains(s.Strays, name)
}

// encrypts reports whether any record may be under a key.
func (s State) encrypts() bool {
	return slices.ContainsFunc(s.InUse(), func(name string) bool { return name != Off })
}

// lacks refuses a State whose records a process with these keys could not read.
func (s State) lacks(k *Keys) error {
	for _, name := range slices.Sorted(maps.Keys(s.Under)) {
		has, check := k.named[name], s.Under[name]
		switch {
		case name == Off:
		case has == nil:
			return fmt.Errorf("%w: records are under key %s, which is not one of encryption.keys (%s): add the file of %s", ErrKey, name, k, name)
		case check != has.check:
			return fmt.Errorf("%w: key %s is another one here than the records were written with: correct the file of %s in encryption.keys", ErrKey, name, name)
		}
	}
	return nil
}

// wanted is the label of documents that are stored as the State has it. format and name of a key
// are what an envelope begins with.
func wanted(names ...string) record.Label {
	l := record.Label{Field: Field}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == Off {
			l.Absent = true
		} else {
			l.Begins = append(l.Begins, append([]byte{format}, name...))
		}
	}
	return l
}

func (s *State) add(k *Keys, name string) {
	s.Under = maps.Clone(s.Under)
	if s.Under == nil {
		s.Under = map[string]string{}
	}
	s.Under[name] = ""
	if has := k.named[name]; has != nil {
		s.Under[name] = has.check
	}
}

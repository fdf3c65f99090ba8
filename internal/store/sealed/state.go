package sealed

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

// State is the data in a database about the keys of a namespace. The zero State belongs to a
// namespace that was never encrypted.
type State struct {
	// Key is the name of the key that writers use. Off or empty: they do not encrypt.
	Key string `bson:"key"`
	// Under holds all keys that records may be under: the name, and the digest that tells a key
	// from others of its name. It contains Off if records may be plain.
	Under map[string]string `bson:"under"`
	// Whole promises that every record of a managed kind is under Key, and shows the fields in
	// Clear.
	Whole bool `bson:"whole"`
	// Run is the id of the pass over all records that makes Whole true. A value is never reused.
	Run string `bson:"run,omitempty"`
	// Strays holds further keys that records were found under, contrary to the promise, or Off if
	// an operator admitted plain records. A process without these keys works, except for those
	// records.
	Strays []string `bson:"strays,omitempty"`
	// Missed means that a stray was admitted during the run, whose pass may already be past its
	// record.
	Missed bool `bson:"missed,omitempty"`
	// Clear holds the top-level fields of each kind that stay readable for its indexes.
	Clear map[string][]string `bson:"clear,omitempty"`
	// Count is the number of writes of a signed State.
	Count uint64 `bson:"count,omitempty"`
	// Seal proves the writer of this State. nil: a process without a key wrote it, or a former
	// release.
	Seal *Seal `bson:"seal,omitempty"`
	// New means that the namespace has no records and no State yet. Scratch kinds in its database
	// use the active key of the process that writes them.
	New bool `bson:"-"`
}

// Notes stores the State of a namespace in the namespace's own database. So no process can have one
// without the other.
type Notes interface {
	// State returns the stored State, or the zero State if there is none.
	State(ctx context.Context) (State, error)
	// Change applies change to the State and stores the result, unless change returns false. Change
	// may call it several times, if others write at the same time.
	Change(ctx context.Context, change func(*State) (bool, error)) error
	// Whose names the namespace and its deployment. A State of another one is not accepted.
	Whose() string
}

// normal returns the State with its defaults filled in.
func (s State) normal(k *Keys) State {
	if s.New {
		s = State{Key: k.active, New: true}
		// Scratch records of other processes may be under any of our keys.
		for _, name := range k.Names() {
			s.add(k, name)
		}
		if k.active == Off { // otherwise a removed mark would make plain records acceptable
			s.add(k, Off)
		}
		return s
	}
	if s.Key == "" {
		s.Key = Off
	}
	// An empty list means that all records are plain.
	if len(s.Under) == 0 {
		s.Under, s.Whole = map[string]string{Off: ""}, s.Key == Off
	}
	if s.Key != Off && !s.allows(s.Key) { // records are under the key that writers use, even if Under lacks it
		s.add(k, s.Key)
	}
	return s
}

// Promised returns the key that every record is under, or Off. Empty: several keys are possible.
func (s State) Promised() string {
	if s.Whole {
		return s.Key
	}
	return ""
}

// InUse returns the names of the keys that records may be under, sorted. Off counts as one.
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

// lacks returns an error if a process with these keys could not read all records.
func (s State) lacks(k *Keys) error {
	for _, name := range slices.Sorted(maps.Keys(s.Under)) {
		has, check := k.named[name], s.Under[name]
		switch {
		case name == Off:
		case has == nil:
			return fmt.Errorf("%w: records are encrypted with key %s, which is missing from encryption.keys (%s): add the file of %s", ErrKey, name, k, name)
		// Another key of the same name would decrypt nothing.
		case check != has.check:
			return fmt.Errorf("%w: key %s is another one here than the records were written with: correct the file of %s in encryption.keys", ErrKey, name, name)
		}
	}
	return nil
}

// wanted returns the label that the database must require of stored documents. An envelope begins
// with the format and the name of its key.
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
	// Readers may share the map, so change a copy.
	s.Under = maps.Clone(s.Under)
	if s.Under == nil {
		s.Under = map[string]string{}
	}
	s.Under[name] = ""
	if has := k.named[name]; has != nil {
		s.Under[name] = has.check
	}
}

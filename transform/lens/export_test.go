package lens

import (
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// What tests see of a lens besides its users.

// JoinedSize is what join counts before it joins.
var (
	JoinedSize = joinedSize
	ItemBytes  = itemBytes
	MaxText    = maxText
)

// Keys returns the keys, or nil.
func (l *Lens) Keys() *keymap.Keys { return l.keys }

// Programs returns the programs of both directions.
func (l *Lens) Programs() (up, down operation.Program) { return l.up, l.down }

// FollowIn is Follow with the lenses of other services in the set.
func (l *Lens) FollowIn(kind string, keys transform.Keys, s *Set) (*Following, error) {
	return l.follow(kind, keys, s)
}

// Load replaces how imported lenses are read.
func (s *Set) Load(load func(file string) ([]byte, error)) { s.load = load }

// OperationNames returns the names of all operations.
func OperationNames() []string {
	var out []string
	for _, o := range operations() {
		out = append(out, o.name)
	}
	return out
}

// TopKeys returns the names of a lens's top-level keys.
func TopKeys() []string {
	var out []string
	for _, k := range topKeys() {
		out = append(out, k.name)
	}
	return out
}

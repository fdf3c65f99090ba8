package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Version orders the states of one source record within one direction epoch. The
// source's backend makes it, everyone else only compares it, bytewise. Equal
// versions mean equal content. The zero Version is older than any.
type Version [16]byte

// The last eight bytes of a version that a backend makes are zero: they are Next's.

// Next is the version of one more state that was made of the same snapshot, when more
// became known of what belongs together: later than v and earlier than all later
// snapshots. As NotBefore it means what v means.
func (v Version) Next() Version {
	binary.BigEndian.PutUint64(v[8:], binary.BigEndian.Uint64(v[8:])+1)
	return v
}

// Snapshot is the version of the snapshot that v is, or is a Next of.
func (v Version) Snapshot() Version {
	clear(v[8:])
	return v
}

// Compare is bytes.Compare of the two versions.
func (v Version) Compare(w Version) int { return bytes.Compare(v[:], w[:]) }

// IsZero reports whether v was never set.
func (v Version) IsZero() bool { return v == Version{} }

// String is the hexadecimal form, for logs and for the JSON of a Position.
func (v Version) String() string { return hex.EncodeToString(v[:]) }

// MarshalText writes the form of String.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads the form of String.
func (v *Version) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(v) {
		return fmt.Errorf("version %q: want %d hexadecimal digits", b, 2*len(v))
	}
	if _, err := hex.Decode(v[:], b); err != nil {
		return fmt.Errorf("version %q: %w", b, err)
	}
	return nil
}

// Guard is stored with a target record: the direction epoch and the version of the
// source state that it was made of. A write applies only over a lower guard. An
// absent guard is the zero Guard and lower than any.
type Guard struct {
	Epoch   uint64
	Version Version
}

// GuardSize is the length of Guard.Bytes.
const GuardSize = 24

// Compare orders by epoch, then by version.
func (g Guard) Compare(h Guard) int {
	if g.Epoch != h.Epoch {
		if g.Epoch < h.Epoch {
			return -1
		}
		return 1
	}
	return g.Version.Compare(h.Version)
}

// Older reports whether a write of guard h applies over g: g is lower or, for a repair, of h's
// own version (Batch.Repair).
func (g Guard) Older(h Guard, repair bool) bool {
	c := g.Compare(h)
	return c < 0 || repair && c == 0
}

// IsZero reports an absent guard.
func (g Guard) IsZero() bool { return g == Guard{} }

// Bytes is the stored form; its bytewise order is that of Compare.
func (g Guard) Bytes() []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, GuardSize), g.Epoch), g.Version[:]...)
}

// GuardFrom reads the form of Bytes. Anything of another length is no guard.
func GuardFrom(b []byte) (Guard, bool) {
	if len(b) != GuardSize {
		return Guard{}, false
	}
	g := Guard{Epoch: binary.BigEndian.Uint64(b)}
	copy(g.Version[:], b[8:])
	return g, true
}

// Position is a place in a source's changes: all changes before it have a version of at
// most At, so that a read not before At (as NotBefore) holds them all. MongoDB: At is the
// cluster time of a majority write, and of the snapshot; memstore: At is the clock, which
// counts commits. Positions of one source are ordered by At and then bytewise by Token (see
// Compare), which is how the earliest of several checkpoints is found; resuming needs
// both. The zero Position is no position.
type Position struct {
	At    Version `json:"at"`
	Token []byte  `json:"token,omitempty"`
}

// Compare orders positions of one source.
func (p Position) Compare(q Position) int {
	if c := p.At.Compare(q.At); c != 0 {
		return c
	}
	return bytes.Compare(p.Token, q.Token)
}

// IsZero reports a position that was never set.
func (p Position) IsZero() bool { return p.At.IsZero() && len(p.Token) == 0 }

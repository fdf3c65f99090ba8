package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Version orders the states of one source record within one direction epoch. The source's backend
// makes it. All other code only compares it, bytewise. Equal versions mean equal content. The zero
// Version is older than any other.
type Version [16]byte

// In a version from a backend the last eight bytes are zero. Next counts in them.

// Next returns the version of another state made from the same snapshot as v. The engine needs it
// after it learned that more records belong together. It is later than v and earlier than all later
// snapshots. As NotBefore it means the same as v.
func (v Version) Next() Version {
	binary.BigEndian.PutUint64(v[8:], binary.BigEndian.Uint64(v[8:])+1)
	return v
}

// Snapshot returns the version of the snapshot from which v was made with any number of Next calls.
func (v Version) Snapshot() Version {
	clear(v[8:])
	return v
}

// Compare returns the result of bytes.Compare for the two versions.
func (v Version) Compare(w Version) int { return bytes.Compare(v[:], w[:]) }

// IsZero reports whether v was never set.
func (v Version) IsZero() bool { return v == Version{} }

// String returns the hexadecimal form, for logs and for the JSON of a Position.
func (v Version) String() string { return hex.EncodeToString(v[:]) }

// MarshalText returns the form of String.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText parses the form of String.
func (v *Version) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(v) {
		return fmt.Errorf("version %q: want %d hexadecimal digits", b, 2*len(v))
	}
	if _, err := hex.Decode(v[:], b); err != nil {
		return fmt.Errorf("version %q: %w", b, err)
	}
	return nil
}

// Guard is stored with a target record: the direction epoch, and the version of the source state
// that the record was made from. A write applies only over a lower guard. A record without a guard
// has the zero Guard, which is lower than any other.
type Guard struct {
	Epoch   uint64
	Version Version
}

// GuardSize is the length of Guard.Bytes.
const GuardSize = 24

// Compare orders guards by epoch, then by version.
func (g Guard) Compare(h Guard) int {
	if g.Epoch != h.Epoch {
		if g.Epoch < h.Epoch {
			return -1
		}
		return 1
	}
	return g.Version.Compare(h.Version)
}

// Older reports whether a write with guard h applies over g. It does if g is lower or, for a
// repair, equal (see Batch.Repair).
func (g Guard) Older(h Guard, repair bool) bool {
	c := g.Compare(h)
	return c < 0 || repair && c == 0
}

// IsZero reports whether the guard is absent.
func (g Guard) IsZero() bool { return g == Guard{} }

// Bytes returns the stored form. Its bytewise order is the order of Compare.
func (g Guard) Bytes() []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, GuardSize), g.Epoch), g.Version[:]...)
}

// GuardFrom parses the form of Bytes. It returns false for any other length.
func GuardFrom(b []byte) (Guard, bool) {
	if len(b) != GuardSize {
		return Guard{}, false
	}
	g := Guard{Epoch: binary.BigEndian.Uint64(b)}
	copy(g.Version[:], b[8:])
	return g, true
}

// Position is a place in a source's changes. Changes before it have versions of at most At, so a
// read with At as NotBefore sees them all. In MongoDB, At is the cluster time of a majority write
// and of the snapshot. In memstore, At is the clock, which counts commits. Compare orders the
// positions of one source by At and then bytewise by Token. Resuming needs both. The zero Position
// is no position.
type Position struct {
	At    Version `json:"at"`
	Token []byte  `json:"token,omitempty"`
}

// Compare orders positions of one source, so that callers can find the earliest of several
// checkpoints.
func (p Position) Compare(q Position) int {
	if c := p.At.Compare(q.At); c != 0 {
		return c
	}
	return bytes.Compare(p.Token, q.Token)
}

// IsZero reports whether the position was never set.
func (p Position) IsZero() bool { return p.At.IsZero() && len(p.Token) == 0 }

package sealed

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// Seal proves that a State was written by a process with a key of the configuration. A login that may
// only write to the database cannot make one.
type Seal struct {
	Key string `bson:"key"` // name of the key that the MAC key is derived from
	Sum []byte `bson:"sum"` // HMAC-SHA-256
}

// ErrState means that the State of keys in the database is not accepted: nobody with a key has
// vouched for it, or it is older than one that this process has seen. A person must look.
var ErrState = fmt.Errorf("%w: the state of keys in the database's mark is refused", ErrKey)

// errOld is the ErrState of one that is weaker and older than another one.
var errOld = fmt.Errorf("%w", ErrState)

// acceptVerb says what ends an ErrState.
const acceptVerb = "somebody who may write to the database may have changed it: look who, and have the state accepted with 'dbcontroller keys accept' where it is right"

// newMAC derives the key that States are authenticated with. It serves no other purpose, so that
// nothing about the key of records follows from a sum.
func newMAC(key []byte) ([]byte, error) {
	return hkdf.Key(sha256.New, key, nil, "state of keys 1 of dbcontroller", sha256.Size)
}

// sum is the MAC of a State that belongs to one namespace of one deployment.
func (s State) sum(mac []byte, key, namespace string) ([]byte, error) {
	clear := map[string][]string{}
	for kind, fields := range s.Clear {
		if len(fields) > 0 { // databases do not tell none from empty
			clear[kind] = fields
		}
	}
	text, err := json.Marshal(struct {
		Namespace, SealKey, Key string
		Under                   map[string]string `json:",omitempty"`
		Whole                   bool
		Run                     string
		Strays                  []string `json:",omitempty"`
		Missed                  bool
		Clear                   map[string][]string `json:",omitempty"`
		Count                   uint64
	}{namespace, key, s.Key, s.Under, s.Whole, s.Run, s.Strays, s.Missed, clear, s.Count})
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, mac)
	h.Write(text)
	return h.Sum(nil), nil
}

// weak reports whether records may be plain by a State, or are written so.
func (s State) weak() bool { return s.Key == Off || s.Key == "" || len(s.Under) == 0 || s.allows(Off) }

// sign makes the Seal of a State under a key that every process needs anyway: the one that all
// write under. Where they write in clear it is the active one, or another one that is here.
func (s *State) sign(k *Keys, namespace string) error {
	s.Seal = nil
	if len(k.named) == 0 && !s.encrypts() {
		return nil // nothing is encrypted, and nobody here could prove anything
	}
	names := append([]string{s.Key, k.active}, s.InUse()...)
	if s.Key == Off || s.Key == "" {
		names = append(names, k.Names()...)
	} else {
		names = names[:1]
	}
	at := slices.IndexFunc(names, func(name string) bool { return k.named[name] != nil })
	if at < 0 {
		return fmt.Errorf("%w: key %s is not one of encryption.keys (%s): add its file", ErrKey, s.Key, k)
	}
	s.Count++
	sum, err := s.sum(k.named[names[at]].mac, names[at], namespace)
	s.Seal = &Seal{Key: names[at], Sum: sum}
	return err
}

// trusted refuses a State that nobody with a key of the configuration has vouched for, where the
// configuration names an active key. With active: off, or without keys, the configuration asks for
// no more than any State gives.
func (s State) trusted(k *Keys, namespace string) error {
	if s.New || k.active == Off {
		return nil
	}
	if s.proven(k, namespace) {
		return nil
	}
	if err := s.lacks(k); err != nil {
		return err // which says more of what to do
	}
	switch {
	case s.Seal == nil && !s.encrypts():
		return fmt.Errorf("%w: by it records may be plain, and nobody with a key has said so: give 'active: off' until a controller says that it has, and then the key (docs/encryption.md); where records were encrypted before, %s", ErrState, acceptVerb)
	case s.Seal == nil:
		return fmt.Errorf("%w: it has no proof that a process with a key wrote it: %s", ErrState, acceptVerb)
	case k.named[s.Seal.Key] == nil:
		return fmt.Errorf("%w: its proof is under key %s, which is not one of encryption.keys (%s): add the file of %s, or: %s", ErrState, s.Seal.Key, k, s.Seal.Key, acceptVerb)
	}
	return fmt.Errorf("%w: its proof under key %s is false, or that is another key of the name: %s", ErrState, s.Seal.Key, acceptVerb)
}

// proven reports whether somebody with a key that is here has vouched for a State.
func (s State) proven(k *Keys, namespace string) bool {
	if s.Seal == nil || k.named[s.Seal.Key] == nil {
		return false
	}
	sum, err := s.sum(k.named[s.Seal.Key].mac, s.Seal.Key, namespace)
	return err == nil && hmac.Equal(sum, s.Seal.Sum)
}

// fresh refuses a State under which records may be plain, and which is older than one that this
// process has seen: somebody has put it back. One under which all are encrypted is not weaker than
// the configuration, however old it is.
func (s State) fresh(k *Keys, seen uint64) error {
	if s.New || k.active == Off || !s.weak() || s.Count >= seen {
		return nil
	}
	return fmt.Errorf("%w: by it records may be plain, and it is the one of write %d, while this process has seen write %d: %s", errOld, s.Count, seen, acceptVerb)
}
